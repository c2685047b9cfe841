import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.regression.bootstrap import as_it_was, interval, percentile, resample

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(SIZES, st.integers(0, 1000))
def test_a_drawn_visit_brings_as_many_requests_as_it_had(sizes: list[int], seed: int) -> None:
    counts = resample(sizes, 20, np.random.default_rng(seed))
    assert counts.shape == (20, sum(sizes))
    ends = np.cumsum(sizes)
    for size, end in zip(sizes, ends, strict=True):
        assert not (counts[:, end - size : end].sum(axis=1) % size).any()
    visits = sum(counts[:, end - size : end].sum(axis=1) // size for size, end in zip(sizes, ends, strict=True))
    assert (np.asarray(visits) == len(sizes)).all()


def test_visits_are_drawn_whole_and_not_only_their_requests() -> None:
    counts = resample([50, 50], 1000, np.random.default_rng(0))
    of_the_first = counts[:, :50].sum(axis=1)
    assert set(of_the_first.tolist()) == {0, 50, 100}


@given(st.data())
def test_a_percentile_is_that_of_the_values_drawn_out(data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    values = sorted(data.draw(st.lists(st.floats(0, 100), min_size=len(owners), max_size=len(owners))))
    counts = np.array([data.draw(st.lists(st.integers(0, 3), min_size=5, max_size=5))])
    q = data.draw(st.floats(0, 100))
    found = percentile(np.array(values), np.array(owners), counts, q)[0]
    expanded = np.repeat(values, counts[0][owners])
    if len(expanded):
        assert found == pytest.approx(np.percentile(expanded, q), abs=1e-9)
    else:
        assert np.isnan(found)


def test_a_percentile_of_many_values_is_taken_block_by_block() -> None:
    values, places = np.arange(1_500_000, dtype=np.float64), np.arange(1_500_000)
    counts = np.concatenate([as_it_was(1_500_000)] * 3)
    assert percentile(values, places, counts, 50).tolist() == [749_999.5] * 3


def test_nothing_measured_has_no_percentile_and_no_interval() -> None:
    found = percentile(np.array([]), np.array([], np.int64), as_it_was(3), 50)
    assert np.isnan(found).all()
    assert interval(found) is None


def test_an_interval_leaves_out_a_fortieth_on_either_side() -> None:
    assert interval(np.array([*range(1001), np.nan])) == pytest.approx((25.0, 975.0))
