"""The samplers that the engine lacks: the same fields on every protocol, and what of them reaches the engine."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from sampling.breakers import DEFAULT_BREAKERS, breaker_sequences
from sampling.params import SamplingParams
from sampling.shaping import Shaping
from server.api.shaping import SHAPING_FIELDS, ShapingFields, shaping_of
from server.engine.protocol import ModelInfo
from server.engine.tokenizer_pool import INLINE_CHARACTERS, TokenizerPool
from tests.support import messages, responses
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.site import CHAT, COMPLETIONS, MODEL, Served, chat, completion, serving

T = TypeVar("T")

ASKS: dict[str, Callable[..., dict[str, Any]]] = {
    CHAT: chat,
    COMPLETIONS: completion,
    responses.RESPONSES: responses.ask,
    messages.MESSAGES: messages.ask,
}
EVERYWHERE = pytest.mark.parametrize("path", ASKS, ids=["chat", "text", "responses", "messages"])

WRONG: dict[str, list[Any]] = {
    "dry_multiplier": [-0.1, 100.1, "1", True, [1]],
    "dry_base": [0.9, 10.1, "2"],
    "dry_allowed_length": [0, 4097, 2.0, "2"],
    "dry_sequence_breakers": [[""], ["x" * 41], ["x"] * 17, '["x"]', [1], [None], {}],
    "no_repeat_ngram_size": [-1, 257, 2.0, "2"],
    "top_n_sigma": [-1.1, 100.1, "1"],
    "typical_p": [0, -0.1, 1.1, "1"],
    "xtc_probability": [-0.1, 1.1, True],
    "xtc_threshold": [-0.1, 1.1, "0.1"],
    "dynatemp_range": [-0.1, 2.1, "1"],
    "dynatemp_exponent": [0, -1, 10.1],
    "mirostat": [1, 3, -1, "2", []],
    "mirostat_tau": [-0.1, 100.1, "5"],
    "mirostat_eta": [0, -0.1, 1.1],
}

# Each with what makes it matter, and the Shaping that it then is.
RIGHT: list[tuple[dict[str, Any], Shaping]] = [
    ({"no_repeat_ngram_size": 1}, Shaping(no_repeat_ngram_size=1)),
    ({"no_repeat_ngram_size": 256}, Shaping(no_repeat_ngram_size=256)),
    ({"top_n_sigma": 1}, Shaping(top_n_sigma=1.0)),
    ({"top_n_sigma": 100}, Shaping(top_n_sigma=100.0)),
    ({"top_n_sigma": -1, "typical_p": 0.5}, Shaping(typical_p=0.5)),
    ({"typical_p": 1e-9}, Shaping(typical_p=1e-9)),
    ({"xtc_probability": 1, "xtc_threshold": 0}, Shaping(xtc_probability=1.0, xtc_threshold=0.0)),
    ({"xtc_probability": 0.5, "xtc_threshold": 0.5}, Shaping(xtc_probability=0.5, xtc_threshold=0.5)),
    ({"dynatemp_range": 2, "dynatemp_exponent": 10}, Shaping(dynatemp_range=2.0, dynatemp_exponent=10.0)),
    ({"mirostat": 2}, Shaping(mirostat=2, mirostat_tau=5.0, mirostat_eta=0.1)),
    (
        {"mirostat": 2, "mirostat_tau": 0, "mirostat_eta": 1},
        Shaping(mirostat=2, mirostat_tau=0.0, mirostat_eta=1.0),
    ),
    (
        {"mirostat": 2, "mirostat_tau": 100, "top_n_sigma": None, "typical_p": 1},
        Shaping(mirostat=2, mirostat_tau=100.0),
    ),
    (
        {"dry_multiplier": 100, "dry_base": 10, "dry_allowed_length": 4096, "dry_sequence_breakers": []},
        Shaping(dry_multiplier=100.0, dry_base=10.0, dry_allowed_length=4096),
    ),
    (
        {"dry_multiplier": 0.8, "dry_base": 1, "dry_allowed_length": 1, "dry_sequence_breakers": []},
        Shaping(dry_multiplier=0.8, dry_base=1.0, dry_allowed_length=1),
    ),
]

OFF: list[dict[str, Any]] = [
    {},
    dict.fromkeys(WRONG),
    {"dry_multiplier": 0, "dry_base": 2, "dry_allowed_length": 5, "dry_sequence_breakers": ["x"] * 16},
    {"no_repeat_ngram_size": 0},
    {"top_n_sigma": 0},
    {"top_n_sigma": -1},
    {"typical_p": 1},
    {"xtc_probability": 0, "xtc_threshold": 0},
    {"xtc_probability": 1, "xtc_threshold": 0.51},
    {"dynatemp_range": 0, "dynatemp_exponent": 2},
    {"mirostat": 0, "mirostat_tau": 3, "mirostat_eta": 0.5},
]


def speculating(model: ModelInfo) -> FakeEngine:
    return FakeEngine(replace(model, shapes=False))


async def refused(site: Served[FakeEngine], path: str, body: Any) -> tuple[str, str, str]:
    """Message, parameter and code of a refusal, in the protocol's own envelope; Anthropic's tells the message alone."""
    answer: Exchange = await site.post(path, body)
    assert answer.status == 400, answer.body
    assert site.engine.sequences == []
    if path == messages.MESSAGES:
        error = messages.error_of(answer)
        return error["message"], error["message"].partition(":")[0], ""
    return answer.error["message"], str(answer.error["param"]), str(answer.error["code"])


async def params_of(site: Served[FakeEngine], path: str, **fields: Any) -> SamplingParams:
    begun = len(site.engine.sequences)
    exchange = site.open(path, ASKS[path](**fields))
    sequence: FakeSequence = await site.engine.sequence(begun)
    sequence.end()
    assert (await exchange).status == 200
    return sequence.request.params


def test_every_field_of_a_shaping_can_be_asked_for() -> None:
    assert set(SHAPING_FIELDS) == set(Shaping.__dataclass_fields__) == set(WRONG)


@EVERYWHERE
@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in WRONG for value in WRONG[field]],
    ids=lambda value: repr(value)[:30],
)
async def test_a_wrong_value_is_named(site: Served[FakeEngine], path: str, field: str, value: Any) -> None:
    message, param, _ = await refused(site, path, ASKS[path](**{field: value}))
    assert param.split(".")[0] == field
    assert message.startswith(field)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999"])
@pytest.mark.parametrize("field", ["dry_multiplier", "top_n_sigma", "typical_p", "mirostat_tau"])
async def test_numbers_that_are_none(site: Served[FakeEngine], field: str, number: str) -> None:
    body = json.dumps(chat(**{field: 0})).replace(f'"{field}": 0', f'"{field}": {number}').encode()
    _, param, _ = await refused(site, CHAT, body)
    assert param in (field, "None")  # None: not JSON at all


async def test_of_mirostat_only_the_second_version_is_offered(site: Served[FakeEngine]) -> None:
    message, _, _ = await refused(site, CHAT, chat(mirostat=1))
    assert message == "mirostat: Input should be 0 or 2"


@EVERYWHERE
@pytest.mark.parametrize(("fields", "expected"), RIGHT, ids=lambda value: repr(value)[:60])
async def test_what_is_asked_for_reaches_the_engine(
    site: Served[FakeEngine], path: str, fields: dict[str, Any], expected: Shaping
) -> None:
    assert (await params_of(site, path, **fields)).shaping == expected


@EVERYWHERE
@pytest.mark.parametrize("fields", OFF, ids=lambda fields: repr(fields)[:60])
async def test_what_changes_nothing_is_nothing(site: Served[FakeEngine], path: str, fields: dict[str, Any]) -> None:
    assert (await params_of(site, path, **fields)).shaping is None


@EVERYWHERE
async def test_breakers_become_the_models_tokens(site: Served[FakeEngine], path: str) -> None:
    backend = site.engine.model.tokenizer.backend
    asked = (await params_of(site, path, dry_multiplier=1, dry_sequence_breakers=["END", "\n"])).shaping
    default = (await params_of(site, path, dry_multiplier=1)).shaping
    assert asked is not None
    assert default is not None
    assert asked.dry_sequence_breakers == breaker_sequences(backend, ["END", "\n"])
    assert default.dry_sequence_breakers == breaker_sequences(backend, DEFAULT_BREAKERS)
    assert asked.dry_sequence_breakers
    assert asked != default


@EVERYWHERE
async def test_a_breaker_that_half_the_vocabulary_holds_is_refused(site: Served[FakeEngine], path: str) -> None:
    message, param, _ = await refused(site, path, ASKS[path](dry_multiplier=1, dry_sequence_breakers=["e"]))
    assert message == "dry_sequence_breakers: more than 16384 of the model's tokens hold one."
    assert param == "dry_sequence_breakers"


class Recorded(TokenizerPool):
    """Remembers how long the texts were said to be."""

    def __init__(self) -> None:
        super().__init__()
        self.characters: list[int] = []

    async def run(self, characters: int, work: Callable[[], T]) -> T:
        self.characters.append(characters)
        return await super().run(characters, work)


async def test_breakers_are_looked_up_off_the_loop_and_only_where_they_matter(model: ModelInfo) -> None:
    pool = Recorded()
    for fields in (ShapingFields(typical_p=0.5, dry_sequence_breakers=["x"]), ShapingFields(dry_base=2.0)):
        await shaping_of(fields, 1.0, model, pool)
    assert pool.characters == []
    await shaping_of(ShapingFields(dry_multiplier=1.0), 1.0, model, pool)
    (characters,) = pool.characters
    assert characters > INLINE_CHARACTERS
    pool.close()


@EVERYWHERE
@pytest.mark.parametrize(("field", "value"), [("dynatemp_range", 0.5), ("mirostat", 2)])
async def test_what_has_no_effect_without_randomness_is_refused(
    site: Served[FakeEngine], path: str, field: str, value: Any
) -> None:
    message, param, code = await refused(site, path, ASKS[path](**{field: value, "temperature": 0}))
    assert message == f"{field}: has no effect at temperature 0."
    assert param == field
    assert code in ("invalid_value", "")


async def test_the_temperature_may_be_the_models_own(model: ModelInfo) -> None:
    async with serving(FakeEngine(replace(model, default_sampling={"temperature": 0.0}))) as site:
        _, param, _ = await refused(site, CHAT, chat(mirostat=2))
        assert param == "mirostat"
        assert (await params_of(site, CHAT, mirostat=2, temperature=0.5)).shaping == Shaping(mirostat=2)
    async with serving(FakeEngine(replace(model, default_sampling={}))) as site:
        params = await params_of(site, CHAT, mirostat=2)
        assert (params.temperature, params.shaping) == (None, Shaping(mirostat=2))


@pytest.mark.parametrize(
    "fields",
    [
        {"dry_multiplier": 1},
        {"no_repeat_ngram_size": 2},
        {"top_n_sigma": 1},
        {"typical_p": 0.5},
        {"xtc_probability": 1},
        {"mirostat": 0, "dynatemp_range": 0, "typical_p": 0.5},
    ],
    ids=repr,
)
async def test_what_has_an_effect_without_randomness_is_not(site: Served[FakeEngine], fields: dict[str, Any]) -> None:
    params = await params_of(site, CHAT, temperature=0, **fields)
    assert params.shaping is not None
    assert params.shaping.active


@EVERYWHERE
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"dry_multiplier": 1}, "dry_multiplier"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
        ({"top_n_sigma": 1}, "top_n_sigma"),
        ({"typical_p": 0.5}, "typical_p"),
        ({"xtc_probability": 1}, "xtc_probability"),
        ({"dynatemp_range": 1}, "dynatemp_range"),
        ({"mirostat": 2}, "mirostat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_engine_that_speculates_shapes_nothing_and_says_so(
    model: ModelInfo, path: str, fields: dict[str, Any], named: str
) -> None:
    async with serving(speculating(model)) as site:
        message, param, code = await refused(site, path, ASKS[path](**fields))
        assert "not with speculative decoding" in message
        assert param == named
        assert code in ("unsupported_parameter", "")


@pytest.mark.parametrize("fields", OFF, ids=lambda fields: repr(fields)[:60])
async def test_an_engine_that_speculates_takes_what_changes_nothing(model: ModelInfo, fields: dict[str, Any]) -> None:
    async with serving(speculating(model)) as site:
        assert (await params_of(site, CHAT, **fields)).shaping is None


async def test_each_continuation_has_its_own_seed_and_the_same_shaping(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(n=3, seed=5, xtc_probability=0.5))
    await site.engine.sequence(2)
    for sequence in site.engine.sequences:
        sequence.end()
    assert (await exchange).status == 200
    params = [sequence.request.params for sequence in site.engine.sequences]
    assert [each.seed for each in params] == [5, 6, 7]
    assert [each.shaping for each in params] == [Shaping(xtc_probability=0.5)] * 3


@pytest.mark.parametrize("schema", ["ChatRequest", "CompletionRequest", "ResponsesRequest", "MessagesRequest"])
async def test_the_description_of_the_api_has_the_fields_with_their_ranges(
    site: Served[FakeEngine], schema: str
) -> None:
    properties = (await site.get("/openapi.json")).json["components"]["schemas"][schema]["properties"]
    assert all(properties[name]["description"] for name in SHAPING_FIELDS)
    assert properties["typical_p"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert properties["no_repeat_ngram_size"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 256}
    assert properties["mirostat"]["anyOf"][0] == {"type": "integer", "enum": [0, 2]}


@pytest.mark.parametrize("shapes", [True, False])
async def test_a_model_lists_what_its_engine_can_do(model: ModelInfo, shapes: bool) -> None:
    async with serving(FakeEngine(replace(model, shapes=shapes))) as site:
        (listed,) = (await site.get("/v1/models")).json["data"]
        shown = (await site.get(f"/v1/models/{MODEL}")).json
    supported = listed["supported_parameters"]
    assert shown["supported_parameters"] == supported
    assert len(supported) == len(set(supported))
    assert {"temperature", "top_p", "top_k", "seed", "stop"} <= set(supported)
    assert {*SHAPING_FIELDS, "min_p", "logit_bias"} & set(supported) == (
        {*SHAPING_FIELDS, "min_p", "logit_bias"} if shapes else set()
    )
