"""Our server against itself with other settings: the same model, the same load, in turn, in one run.

    python -m bench.compare_settings --model smollm2-135m --set telemetry.steps=false --out DIR

Arms `ours` (as it is) and `changed` (with the `--set`s), visited A B B A in every round as in bench.compare_stock, each
visit with a server of its own. The table has ratios `ours / changed` with their spread and the A/A width.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import loop
from bench.arms import Arm
from bench.compare_arms import CHECKOUT, OURS, clean_env, filled
from bench.compare_report import table
from bench.compare_stock import Comparison, add_load_options, load_facts

CHANGED = "changed"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare_settings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--set", action="append", required=True, metavar="SECTION.KEY=VALUE", dest="settings")
    parser.add_argument("--ours-command", default="{python} -m server serve {model} --port {port}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="folder for result.json and the logs")
    add_load_options(parser)
    return parser.parse_args(argv)


def arms(args: argparse.Namespace) -> list[Arm]:
    ours = Arm(OURS, filled(args.ours_command, args.model), clean_env(), CHECKOUT)
    changes = [part for setting in args.settings for part in ("--set", setting)]
    return [ours, dataclasses.replace(ours, name=CHANGED, argv=(*ours.argv, *changes))]


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    both = arms(args)
    comparison = Comparison(both, args, load_facts(args, both))
    loop.run(comparison.run())
    print(table(comparison.visits))
    print(f"\nraw figures: {args.out / 'result.json'}")
    return 1 if comparison.errors else 0


if __name__ == "__main__":
    sys.exit(main())
