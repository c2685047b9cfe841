from bench.sample import NO_CHOICE, RequestSample, StreamEvent


def at(stamp: int, choice: int = 0, generated: bool = True) -> StreamEvent:
    return StreamEvent(stamp, choice, generated, None)


def test_ttft_is_the_first_event_with_generated_data() -> None:
    sample = RequestSample(sent_ns=100, events=[at(110, generated=False), at(150), at(170)])
    assert sample.ttft_ns == 50


def test_latencies_count_from_the_scheduled_arrival_where_there_is_one() -> None:
    sample = RequestSample(sent_ns=100, scheduled_ns=40, done_ns=200, events=[at(150)])
    assert (sample.ttft_ns, sample.e2e_ns, sample.lateness_ns) == (110, 160, 60)


def test_gaps_are_taken_within_a_choice() -> None:
    sample = RequestSample(events=[at(10), at(12, choice=1), at(15), at(22, choice=1), at(30, NO_CHOICE, False)])
    assert sample.gaps_ns == [5, 10]


def test_tpot_divides_by_tokens_not_by_events() -> None:
    sample = RequestSample(events=[at(100), at(200), at(400)], output_tokens=7)
    assert sample.tpot_ns == 50.0


def test_tpot_is_undefined_for_one_token_for_several_choices_and_without_usage() -> None:
    assert RequestSample(events=[at(100)], output_tokens=1).tpot_ns is None
    assert RequestSample(events=[at(100), at(200, choice=1)], output_tokens=4).tpot_ns is None
    assert RequestSample(events=[at(100), at(200)]).tpot_ns is None


def test_a_request_that_got_nothing_has_no_latencies() -> None:
    sample = RequestSample(sent_ns=1, error="connect")
    assert (sample.ttft_ns, sample.tpot_ns, sample.e2e_ns, sample.gaps_ns) == (None, None, None, [])
    assert not sample.ok
