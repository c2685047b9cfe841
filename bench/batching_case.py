"""The serving chapter's batching case, simulated: which policy produces it, and which setting is better.

    python -m bench.batching_case --output DIR

Single-step requests on the scripted engine's cost model, in virtual time: equal seeds give equal figures on every
machine. Prints the tables and writes them, as `report.txt` and with plots as `report.html`, to the folder.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.batching_chapter import BOUND_MS, DURATION_S
from bench.batching_experiments import run_case
from bench.batching_html import html
from bench.batching_report import text


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.batching_case",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for report.txt and report.html")
    parser.add_argument("--seed", type=int, default=1, help="of the trace")
    parser.add_argument("--p99-bound-ms", type=float, default=BOUND_MS, help="throughput counts within it")
    parser.add_argument("--duration-s", type=float, default=DURATION_S, help="of the trace, in virtual time")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    case = run_case(args.seed, args.p99_bound_ms, args.duration_s)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "report.txt").write_text(text(case) + "\n")
    (args.output / "report.html").write_text(html(case))
    print(text(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
