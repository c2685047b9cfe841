from bench.overload_fairness import Fairness
from bench.overload_refusals import BURST, STEADY, Refusals
from bench.overload_results import Results
from bench.overload_verdicts import Verdict, verdicts
from tests.bench.outcomes import completed, good_point, point, refused

MS = 1_000_000


def results(**good: tuple[int, int, int]) -> Results:
    """Good requests of each arm at 1, 2 and 3 times capacity."""
    found = Results({})
    for arm, counts in good.items():
        found.points += [
            good_point(arm.replace("_", "-"), factor, count) for factor, count in zip((1, 2, 3), counts, strict=True)
        ]
    return found


def verdict(found: Results, *words: str) -> Verdict:
    [one] = [each for each in verdicts(found) if all(word in each.claim for word in words)]
    return one


def test_goodput_under_overload_is_held_against_the_best_point_of_any_arm() -> None:
    found = results(ours=(90, 85, 84), stock=(100, 10, 5))
    assert verdict(found, "at 2x", "best point").met is True
    assert verdict(found, "at 3x", "best point").met is False
    assert "(stock)" in verdict(found, "at 3x", "best point").claim
    better_ourselves = results(ours=(200, 100, 90), stock=(100, 10, 5))
    assert verdict(better_ourselves, "at 2x", "best point").met is False


def test_stock_is_to_be_beaten_by_two_to_one() -> None:
    assert verdict(results(ours=(0, 40, 0), stock=(0, 20, 0)), "over stock's").met is True
    assert verdict(results(ours=(0, 39, 0), stock=(0, 20, 0)), "over stock's").met is False
    assert verdict(results(ours=(0, 1, 0), stock=(0, 0, 0)), "over stock's").met is True
    assert verdict(results(ours=(0, 0, 0), stock=(0, 0, 0)), "over stock's").met is False


def test_the_bounded_queue_is_to_be_beaten_outright() -> None:
    found = results(ours=(9, 9, 9), stock_queue=(9, 9, 8))
    assert verdict(found, "2x above").met is False
    assert verdict(found, "3x above").met is True


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {each.met for each in verdicts(Results({}))} == {None}
    assert all("not measured" in each.found for each in verdicts(Results({})))


def shares(short: int, long: int) -> Results:
    """So many of eight refused among the shortest and the longest quarter."""
    short_ones = [refused(n, tokens=50) if n < short else completed(n, tokens=50) for n in range(8)]
    middle = [completed(100 + n, tokens=500) for n in range(16)]
    long_ones = [refused(200 + n, tokens=900) if n < long else completed(200 + n, tokens=900) for n in range(8)]
    return Results({}, points=[point("ours", 2.0, short_ones + middle + long_ones)])


def test_long_requests_may_be_refused_half_as_often_again_as_short_ones() -> None:
    assert verdict(shares(4, 6), "refused at 2x").met is True
    assert verdict(shares(4, 7), "refused at 2x").met is False
    assert verdict(shares(0, 1), "refused at 2x").met is False
    assert verdict(shares(0, 0), "refused at 2x").met is None


def refusals(kind: str, *, cpu_us: float, latency_ms: int) -> Refusals:
    return Refusals(kind, 10, [latency_ms * MS] * 10, {}, cpu_us * 10_000)


def test_refusals_have_a_bar_for_cpu_and_a_laxer_one_for_latency_when_many_come_at_once() -> None:
    found = Results(
        {}, refusals=[refusals(BURST, cpu_us=200, latency_ms=150), refusals(STEADY, cpu_us=201, latency_ms=51)]
    )
    assert verdict(found, "CPU", BURST).met is True
    assert verdict(found, "latency", BURST).met is True
    assert verdict(found, "CPU", STEADY).met is False
    assert verdict(found, "latency", STEADY).met is False


def test_nobody_refused_is_no_success() -> None:
    assert verdict(Results({}, refusals=[Refusals(STEADY, 10, [], {}, 0.0)]), "CPU", STEADY).met is None


def test_a_modest_key_waits_no_longer_than_for_the_next_release() -> None:
    fair = Fairness([100.0], [210.0], [90.0, 100.0], 0, 5, 5, releases=20, seconds=2.0)
    found = Results({}, fairness=fair)
    assert verdict(found, "admit p95").met is True
    assert verdict(found, "TTFT p95").met is False
