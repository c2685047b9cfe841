"""The record of what shapes a request's distribution, here and on its way to the engine's processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.shaping import Shaping

TOKEN_IDS = st.integers(0, 2**31 - 1)
BREAKERS = st.lists(st.lists(TOKEN_IDS, min_size=1, max_size=4).map(tuple), max_size=5).map(tuple)
SHAPINGS = st.builds(
    Shaping,
    dry_multiplier=st.floats(0, 100),
    dry_allowed_length=st.integers(1, 4096),
    dry_sequence_breakers=BREAKERS,
    typical_p=st.floats(0, 1, exclude_min=True),
    mirostat=st.sampled_from([0, 2]),
)


@given(SHAPINGS)
def test_a_shaping_is_the_same_after_its_way(shaping: Shaping) -> None:
    assert Shaping.from_wire(shaping.to_wire()) == shaping


def test_only_what_differs_from_the_defaults_is_sent() -> None:
    assert Shaping().to_wire() == {}
    assert Shaping(top_n_sigma=1.5, mirostat_tau=5.0).to_wire() == {"top_n_sigma": 1.5}


def test_a_thousand_breakers_are_one_value() -> None:
    breakers = tuple((token,) for token in range(1000))
    wire = Shaping(dry_sequence_breakers=breakers).to_wire()
    assert list(map(type, wire.values())) == [bytes]


@pytest.mark.parametrize(
    ("shaping", "active"),
    [
        (Shaping(), False),
        (Shaping(dry_base=2.0, dry_sequence_breakers=((1,),), mirostat_tau=1.0, dynatemp_exponent=2.0), False),
        (Shaping(xtc_probability=0.5, xtc_threshold=0.5), True),
        (Shaping(xtc_probability=0.5, xtc_threshold=0.51), False),
        (Shaping(xtc_threshold=0.2), False),
        (Shaping(typical_p=0.99), True),
        (Shaping(mirostat=2), True),
    ],
    ids=repr,
)
def test_it_is_active_where_it_changes_a_distribution(shaping: Shaping, active: bool) -> None:
    assert shaping.active is active
