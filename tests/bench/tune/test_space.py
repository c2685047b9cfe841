from bench.run.objectives import parse
from bench.tune.space import BINDING, MAX_WAIT, SLO_TTFT, SORT_FREE, Knob, Space, around, space, words

WANTED = parse("ttft_p99<1s,tpot_p99<120ms")
SETTINGS = {"engine": {"args": {"max_num_seqs": 64, "enforce_eager": True}}, "admission": None}


def knob(name: str, settings: object = SETTINGS, device: str = "cpu", slo: str = WANTED.text) -> Knob:
    found = space(settings, device, [0, 1, 2], parse(slo))  # type: ignore[arg-type]
    return next(each for each in found.knobs if each.name == name)


def test_choices_are_around_what_is_set_now_and_that_is_no_change() -> None:
    assert around("a.b", (8, 16), 12) == [{"a.b": 8}, {}, {"a.b": 16}]
    assert around("a.b", (8, 16), 16) == [{"a.b": 8}, {}]
    assert around("a.b", (8, 16), None) == [{}, {"a.b": 8}, {"a.b": 16}]


def test_a_value_of_the_file_that_is_not_on_the_scale_joins_it() -> None:
    settings = {"engine": {"args": {"max_num_seqs": 2}}}
    assert knob("max_num_seqs", settings).choices[:2] == [{}, {"engine.args.max_num_seqs": 8}]


def test_the_settings_as_they_are_are_the_point_without_changes() -> None:
    found = space(SETTINGS, "cpu", [0, 1], WANTED)
    assert found.changes(found.now) == {}


def test_steps_differ_from_the_settings_as_they_are_in_one_knob() -> None:
    found = space(SETTINGS, "cpu", [0, 1], WANTED)
    for point in found.steps():
        assert sum(index != now for index, now in zip(point, found.now, strict=True)) == 1
    assert len(set(found.steps())) == sum(len(each.choices) - 1 for each in found.knobs)


def test_a_wait_leaves_time_of_the_objective_on_first_tokens() -> None:
    assert {choice[MAX_WAIT] for choice in knob("max_wait").choices if choice} == {0.25, 0.5}
    assert {choice[MAX_WAIT] for choice in knob("max_wait", slo="tpot_p99<1s").choices if choice} == {
        *(0.25, 0.5, 1.0, 2.0, 5.0)
    }


def test_admission_can_be_steered_by_the_objectives_that_were_given_and_only_by_those() -> None:
    assert knob("slo").choices[1] == {SLO_TTFT: 1000.0, "admission.slo.tpot_p99_ms": 120.0}
    assert knob("slo", slo="ttft_p99<1s").choices[1] == {SLO_TTFT: 1000.0}
    assert not any(each.name == "slo" for each in space(SETTINGS, "cpu", [0, 1], parse("gap_p99<1s")).knobs)
    already = {"admission": {"slo": {"ttft_p99_ms": 1000.0}}}
    assert knob("slo", already, slo="ttft_p99<1s").choices == [{}, {SLO_TTFT: 900.0}]


def test_our_top_p_is_added_to_the_processors_or_taken_from_them() -> None:
    path = "engine.args.logits_processors"
    assert knob("logits_processors").choices == [{}, {path: [SORT_FREE]}]
    settings = {"engine": {"args": {"logits_processors": ["a:B", SORT_FREE]}}}
    assert knob("logits_processors", settings).choices == [{}, {path: ["a:B"]}]


def test_a_cpu_can_leave_a_core_to_the_front_end_and_compile() -> None:
    assert knob("threads").choices == [{}, {BINDING: "0,1"}]
    assert knob("eager").choices == [{}, {"engine.args.enforce_eager": False}]
    bound = {"engine": {"env": {"VLLM_CPU_OMP_THREADS_BIND": "0,1"}}}
    assert knob("threads", bound).choices == [{}, {BINDING: "0,1,2"}]


def test_a_single_core_has_nothing_to_leave() -> None:
    assert not any(each.name == "threads" for each in space(SETTINGS, "cpu", [0], WANTED).knobs)


def test_a_gpu_has_larger_batches_and_no_threads_to_bind() -> None:
    names = [each.name for each in space({}, "gpu", [0, 1], WANTED).knobs]
    assert "threads" not in names and "eager" not in names
    assert knob("max_num_seqs", {}, "gpu").choices[-1] == {"engine.args.max_num_seqs": 1024}


def test_only_admission_goes_without_a_restart_of_the_engine() -> None:
    for each in space(SETTINGS, "cpu", [0, 1], WANTED).knobs:
        paths = {path for choice in each.choices for path in choice}
        assert all(path.startswith("admission.") for path in paths) == (each.restart == "server")


def test_changes_of_several_knobs_come_together() -> None:
    both = Space([Knob("a", "engine", [{}, {"x.a": 1}]), Knob("b", "server", [{}, {"x.b": 2, "x.c": 3}])])
    assert both.changes([1, 1]) == {"x.a": 1, "x.b": 2, "x.c": 3}
    assert both.changes([1, 0]) == {"x.a": 1}


def test_changes_read_as_words() -> None:
    assert words({}) == "as it is"
    assert words({"a.seqs": 2, "a.batch": [4, 8], "a.list": [], "p": [SORT_FREE]}) == (
        "seqs=2, batch=4+8, list=none, p=SortFreeTopP"
    )
