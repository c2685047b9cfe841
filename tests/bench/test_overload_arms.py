import json
import os
import shlex
from pathlib import Path

from bench.arms import Arm
from bench.compare_arms import ArmOptions
from bench.overload_arms import overload_arms, settings_flags, with_queue_limit, with_settings
from bench.overload_point import Objectives

ANSWER = json.dumps({"argv": ["--max-num-seqs", "64"], "env": {"BIND": "0-1"}})


def options() -> ArmOptions:
    return ArmOptions(
        model="tiny",
        stock_model="/models/tiny",
        ours_command="serve {model} --port {port}",
        ours_health="/health",
        engine_command=shlex.join(["echo", ANSWER]),
        stock_python="python-of-stock",
        stock_args=(),
        null_executor=False,
        allow_same_env=False,
        extra_env={},
    )


def test_both_stock_arms_have_our_engines_arguments_and_environment(tmp_path: Path) -> None:
    arms = overload_arms(options(), ["ours", "stock-queue", "stock"], tmp_path)
    assert list(arms) == ["ours", "stock-queue", "stock"] == [arm.name for arm in arms.values()]
    assert arms["stock"].argv == arms["stock-queue"].argv
    assert arms["stock"].env == arms["stock-queue"].env
    assert shlex.join(arms["stock"].argv).count("--max-num-seqs 64") == 1
    assert arms["stock"].env["BIND"] == "0-1"


def test_the_queue_limit_is_the_only_difference_between_them(tmp_path: Path) -> None:
    stock = overload_arms(options(), ["stock"], tmp_path)["stock"]
    assert with_queue_limit(stock, 900).argv == (*stock.argv, "--max-num-queued-tokens", "900")


def test_the_objectives_become_our_servers_and_assignments_come_after_them() -> None:
    flags = shlex.split(settings_flags(Path("a b.yaml"), Objectives(1.0, 0.2), ["engine.kind=scripted"]))
    assert flags[:2] == ["--config", os.path.abspath("a b.yaml")]
    assert flags[2:] == [
        *("--set", "admission.slo.ttft_p99_ms=1000"),
        *("--set", "admission.slo.tpot_p99_ms=200"),
        *("--set", "engine.kind=scripted"),
    ]


def test_a_scenario_has_settings_of_its_own() -> None:
    arm = Arm("ours", ("serve",), {}, Path("/"))
    assert with_settings(arm, "a.b=1").argv == ("serve", "--set", "a.b=1")
