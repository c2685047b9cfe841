"""What a search may change, and to what. Each knob's choices are around the value that the settings have now.

A change is by the setting's dotted path, and only of what differs: no changes at all are the settings as they are. The
ranges are vLLM's own defaults for servers of either kind (2048 tokens and 128 sequences on a CPU, up to 16384 and 1024
on a GPU) and steps of two below and above them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from bench.run.objectives import Latency, Objectives

Changes = Mapping[str, Any]
Device = Literal["cpu", "gpu"]

SORT_FREE = "sampling.processors.top_p:SortFreeTopP"
BINDING = "engine.env.VLLM_CPU_OMP_THREADS_BIND"
SLO_TTFT, SLO_TPOT = "admission.slo.ttft_p99_ms", "admission.slo.tpot_p99_ms"
MAX_WAIT = "admission.max_wait"

SEQUENCES: Mapping[Device, Sequence[int]] = {"cpu": (8, 16, 32, 64, 128), "gpu": (64, 128, 256, 512, 1024)}
BATCHED_TOKENS: Mapping[Device, Sequence[int]] = {"cpu": (512, 1024, 2048, 4096), "gpu": (2048, 4096, 8192, 16384)}
LONG_PREFILLS = (0, 256, 512, 1024)  # 0: none is long
INTERVALS = (1, 2, 4, 8)
WAITS_S = (0.25, 0.5, 1.0, 2.0, 5.0)
WAIT_SHARE = 0.8  # of the objective on TTFT: a request that waits longer has no time left to be answered in
HOLDS: Sequence[Changes] = (
    {"admission.max_queue_delay": 0.005, "admission.preferred_batch_size": [4]},
    {"admission.max_queue_delay": 0.02, "admission.preferred_batch_size": [4, 8]},
    {"admission.max_queue_delay": 0.05, "admission.preferred_batch_size": []},
)


@dataclass(frozen=True, slots=True)
class Knob:
    """`choices` are changes; one of them, at `now`, is none. `ordered` ones lie on a scale.

    `restart` says what has to start anew for a change to hold: the engine, which loads the model again, or only the
    server in front of it. A trial starts both, since they are one command.
    """

    name: str
    restart: Literal["engine", "server"]
    choices: Sequence[Changes]
    ordered: bool = False

    @property
    def now(self) -> int:
        return next(index for index, choice in enumerate(self.choices) if not choice)


@dataclass(frozen=True, slots=True)
class Space:
    """A point is an index into each knob's choices, in their order."""

    knobs: Sequence[Knob]

    @property
    def now(self) -> tuple[int, ...]:
        return tuple(knob.now for knob in self.knobs)

    def changes(self, point: Sequence[int]) -> Changes:
        """Together; those of no knob overlap."""
        chosen = (knob.choices[index] for knob, index in zip(self.knobs, point, strict=True))
        return {path: value for choice in chosen for path, value in choice.items()}

    def steps(self) -> list[tuple[int, ...]]:
        """All points that differ from the settings as they are in one knob."""
        return [
            (*self.now[:at], choice, *self.now[at + 1 :])
            for at, knob in enumerate(self.knobs)
            for choice in range(len(knob.choices))
            if choice != knob.now
        ]


def space(settings: Mapping[str, Any], device: Device, cores: Sequence[int], wanted: Objectives) -> Space:
    """`settings` are those of the file, by section; `cores` are those that the engine may use."""

    def scale(path: str, restart: Literal["engine", "server"], values: Sequence[Any]) -> Knob:
        return Knob(path.rpartition(".")[2], restart, around(path, values, value_at(settings, path)), ordered=True)

    limits = _limits_ms(wanted)
    longest_wait_s = WAIT_SHARE * limits["ttft"] / 1e3 if "ttft" in limits else WAITS_S[-1]
    knobs = [
        scale("engine.args.max_num_seqs", "engine", SEQUENCES[device]),
        scale("engine.args.max_num_batched_tokens", "engine", BATCHED_TOKENS[device]),
        scale("engine.args.long_prefill_token_threshold", "engine", LONG_PREFILLS),
        scale("engine.args.stream_interval", "engine", INTERVALS),
        scale("admission.max_batch_size", "server", SEQUENCES[device][:-1]),
        scale(MAX_WAIT, "server", [wait for wait in WAITS_S if wait <= longest_wait_s]),
        Knob("hold", "server", [{}, *_others(settings, HOLDS)]),
        Knob("slo", "server", [{}, *_others(settings, _steered(limits))]),
        Knob("logits_processors", "engine", _processors(settings)),
    ]
    if device == "cpu":
        knobs += [Knob("threads", "engine", _bindings(settings, cores)), Knob("eager", "engine", _eager(settings))]
    return Space([knob for knob in knobs if len(knob.choices) > 1])


def value_at(settings: Mapping[str, Any], path: str) -> Any:
    """None where it isn't set."""
    found: Any = settings
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def around(path: str, values: Sequence[Any], now: Any) -> list[Changes]:
    """Changes to each of `values`, and none in the place of what is set now; first, where that isn't known."""
    if now is None:
        return [{}, *({path: value} for value in values)]
    return [{} if value == now else {path: value} for value in sorted({*values, now})]


def key(changes: Changes) -> bytes:
    """Equal for equal changes."""
    return orjson.dumps(dict(changes), option=orjson.OPT_SORT_KEYS)


def words(changes: Changes) -> str:
    """For people: the last part of each path says enough."""
    said = [f"{path.rpartition('.')[2]}={_word(value)}" for path, value in changes.items()]
    return ", ".join(said) or "as it is"


def _word(value: Any) -> str:
    return "+".join(str(part).rpartition(":")[2] for part in value) or "none" if isinstance(value, list) else str(value)


def _limits_ms(wanted: Objectives) -> dict[str, float]:
    """By measure, the tightest."""
    latencies = [objective for objective in wanted.each if isinstance(objective, Latency)]
    return {each.measure: each.limit_ms for each in sorted(latencies, key=lambda each: -each.limit_ms)}


def _others(settings: Mapping[str, Any], choices: Sequence[Changes]) -> list[Changes]:
    """Those that change something."""
    return [choice for choice in choices if any(value_at(settings, path) != new for path, new in choice.items())]


def _steered(limits: Mapping[str, float]) -> list[Changes]:
    """Admission by the objectives themselves, and by nine tenths of them.

    `max_wait` keeps its own knob, and its default follows the objective; both stay below it.
    """
    paths = {path: limits[name] for path, name in ((SLO_TTFT, "ttft"), (SLO_TPOT, "tpot")) if name in limits}
    if not paths:
        return []
    return [{path: round(share * limit, 3) for path, limit in paths.items()} for share in (1.0, 0.9)]


def _processors(settings: Mapping[str, Any]) -> list[Changes]:
    """With our top-p, or without it where it is there."""
    path = "engine.args.logits_processors"
    now = [str(each) for each in value_at(settings, path) or ()]
    other = [each for each in now if each != SORT_FREE] if SORT_FREE in now else [*now, SORT_FREE]
    return [{}, {path: other}]


def _bindings(settings: Mapping[str, Any], cores: Sequence[int]) -> list[Changes]:
    """All cores, which is what the server chooses by itself, or the last one left to the front end."""
    made = [",".join(map(str, some)) for some in (cores, cores[:-1]) if some]
    now = value_at(settings, BINDING) or made[0]
    return [{}, *({BINDING: binding} for binding in made if binding != now)]


def _eager(settings: Mapping[str, Any]) -> list[Changes]:
    path = "engine.args.enforce_eager"
    return [{}, {path: not value_at(settings, path)}]
