from bench.search.knee import knee


def test_the_knee_of_a_queue_is_where_its_wait_takes_off() -> None:
    rates = [0.1 * step for step in range(1, 10)] + [0.95, 0.99]
    found = knee(rates, [1 / (1 - rate) for rate in rates])
    assert found is not None and 0.8 <= found <= 0.95


def test_two_straight_lines_meet_at_the_knee() -> None:
    assert knee([1, 2, 3, 4, 5, 6], [10, 11, 12, 13, 63, 113]) == 4


def test_a_curve_that_does_not_bend_upwards_has_none() -> None:
    assert knee([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert knee([1, 2, 3, 4], [1, 8, 9, 10]) is None
    assert knee([1, 2, 3, 4], [5, 5, 5, 5]) is None
    assert knee([1, 2, 3, 4], [9, 1, 1, 1]) is None


def test_two_points_are_no_curve() -> None:
    assert knee([1, 2], [1, 9]) is None
    assert knee([], []) is None
