import pytest

from server.admission.permits import Permits
from server.errors import Overloaded, ShuttingDown


def test_permits_are_taken_and_given_back() -> None:
    permits = Permits(3)
    with permits.acquire(2), permits.acquire(1):
        assert permits.in_use == 3
    assert permits.in_use == 0


def test_one_more_than_there_are_is_refused_and_takes_none() -> None:
    permits = Permits(3)
    with permits.acquire(2):
        with pytest.raises(Overloaded), permits.acquire(2):
            pass
        assert permits.in_use == 2
        with permits.acquire(1):
            pass


def test_a_permit_goes_back_whatever_ends_its_holder() -> None:
    permits = Permits(1)
    with pytest.raises(KeyboardInterrupt), permits.acquire(1):
        raise KeyboardInterrupt
    assert permits.in_use == 0


def test_closed_permits_refuse_but_take_back() -> None:
    permits = Permits(1)
    with permits.acquire(1):
        permits.closed = True
        with pytest.raises(ShuttingDown), permits.acquire(1):
            pass
    assert permits.in_use == 0
