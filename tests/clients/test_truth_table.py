"""The table's own arithmetic, and how a tool's result file is read. No tool runs here, and no engine."""

import pytest

from bench.metrics import summarize
from tests.clients.truth_table import MEASURES, SPREAD_S, Run, out_of_step, tables, truth_of
from tests.clients.truth_tools import CHAT, Figure, Figures, of_aiperf, of_guidellm, of_summary, of_vllm
from tests.support.results import completed
from tests.support.truth_server import Asked, Script, Told

MS = 1_000_000
PLAIN: Figures = {
    "ttft": Figure(30.0, 31.0),
    "tpot": Figure(8.0, 8.1),
    "gap": Figure(8.0, 9.0),
    "e2e": Figure(62.0, 63.0),
    "tokens": Figure(4.0),
    "rate": Figure(60.0),
}


def told(at_ms: int, *token_ms: int, done_ms: int, tokens: int) -> Told:
    stamps = [(at_ms + after) * MS for after in token_ms]
    return Told(at_ms * MS, stamps, (at_ms + done_ms) * MS, tokens)


def test_the_truth_is_of_the_servers_own_stamps() -> None:
    found = truth_of([told(0, 30, 38, 46, done_ms=54, tokens=5), told(100, 32, 40, 48, done_ms=56, tokens=5)])
    assert found["ttft"].value == 31.0
    assert found["ttft"].p99 == pytest.approx(31.98)
    assert found["tpot"].value == 4.0
    assert found["gap"] == Figure(8.0, 8.0)
    assert found["e2e"].value == 55.0
    assert found["tokens"].value == 5.0
    assert found["rate"].value == pytest.approx(10 / 0.156)


def test_our_summary_is_read() -> None:
    found = of_summary(summarize([completed(ttft_ms=30, gaps_ms=(8, 8), tokens=5)], wall_ns=100 * MS))
    assert found == {
        "ttft": Figure(30.0, 30.0),
        "tpot": Figure(4.0, 4.0),
        "gap": Figure(8.0, 8.0),
        "e2e": Figure(46.0, 46.0),
        "tokens": Figure(5.0),
        "rate": Figure(50.0),
    }


def test_vllms_result_is_read() -> None:
    latencies = {"ttft": (30.0, 31.0), "tpot": (8.0, 8.1), "itl": (8.0, 9.0), "e2el": (62.0, 63.0)}
    medians = {f"median_{name}_ms": figures[0] for name, figures in latencies.items()}
    tails = {f"p99_{name}_ms": figures[1] for name, figures in latencies.items()}
    counts = {"completed": 2, "total_output_tokens": 8, "output_throughput": 60.0}
    assert of_vllm({**medians, **tails, **counts}) == PLAIN


def test_guidellms_result_is_read_with_its_latency_in_seconds() -> None:
    def metric(median: float, p99: float = 0.0) -> dict[str, object]:
        return {"successful": {"median": median, "mean": median, "percentiles": {"p99": p99}}}

    found = of_guidellm(
        {
            "time_to_first_token_ms": metric(30.0, 31.0),
            "inter_token_latency_ms": metric(8.0, 8.1),
            "time_per_output_token_ms": metric(13.5, 14.0),
            "request_latency": metric(0.062, 0.063),
            "output_token_count": metric(4.0),
            "output_tokens_per_second": metric(60.0),
        }
    )
    assert found == {**{name: PLAIN[name] for name in PLAIN if name != "gap"}, "tpot_all": Figure(13.5, 14.0)}


def test_aiperfs_result_is_read() -> None:
    found = of_aiperf(
        {
            "time_to_first_token": {"p50": 30.0, "p99": 31.0},
            "inter_token_latency": {"p50": 8.0, "p99": 8.1},
            "inter_chunk_latency": {"p50": 8.0, "p99": 9.0},
            "request_latency": {"p50": 62.0, "p99": 63.0},
            "output_sequence_length": {"avg": 4.0},
            "output_token_throughput": {"avg": 60.0},
        }
    )
    assert found == PLAIN


def of_table(number: int, **runs: Run) -> tuple[str, str]:
    """Its head and the row of its one case."""
    head, _, row = tables({"case": runs}).split("\n\n")[2 * number + 1].splitlines()
    return head, row


def test_a_figure_that_is_off_is_bold_with_its_error() -> None:
    off = Run({**PLAIN, "ttft": Figure(1.0, 2.0)}, PLAIN)
    _, row = of_table(0, streamgauge=Run(PLAIN, PLAIN), vllm=off)
    assert row == "| case | 30.0 / 31.0 | 30.0 / 31.0 | **1.0 / 2.0** (-29.0) |"


def test_a_tool_is_held_to_the_truth_of_its_own_run() -> None:
    later = {**PLAIN, "ttft": Figure(40.0, 41.0)}
    _, row = of_table(0, streamgauge=Run(PLAIN, PLAIN), vllm=Run(later, later))
    assert row == "| case | 35.0 / 36.0 | 30.0 / 31.0 | 40.0 / 41.0 |"


def test_guidellms_two_figures_per_token_are_two_columns_held_to_one_truth() -> None:
    run = Run({**PLAIN, "tpot_all": Figure(13.5, 14.0)}, PLAIN)
    head, row = of_table(1, guidellm=run)
    assert head == "|  | truth | GuideLLM, its ITL | GuideLLM, its TPOT |"
    assert row == "| case | 8.00 / 8.10 | 8.00 / 8.10 | **13.50 / 14.00** (+5.50) |"


def test_a_tool_without_a_figure_has_no_column_and_one_that_failed_says_so() -> None:
    gapless = {name: figure for name, figure in PLAIN.items() if name != "gap"}
    bad = {"guidellm": Run(None, {}), "aiperf": Run(None, {})}
    found = tables({"plain": {"guidellm": Run(gapless, PLAIN), "aiperf": Run(PLAIN, PLAIN)}, "bad": bad}).split("\n\n")
    assert found[5].splitlines()[0] == "|  | truth | AIPerf, its ICL |"
    assert found[1].splitlines()[-1] == "| bad |  | failed | failed |"
    assert len(found) == 2 * len(MEASURES)


def test_requests_are_out_of_step_and_only_chat_is_answered() -> None:
    script = Script(ttft_s=0.03)
    script_of = out_of_step(script)
    waits = [script_of(Asked(CHAT, {}, b"")).ttft_s for _ in range(20)]
    assert len(set(waits)) == 20 and all(0 <= wait - script.ttft_s <= SPREAD_S for wait in waits)
    assert script_of(Asked("/tokenize", {}, b"")).status == 404
