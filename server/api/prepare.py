"""From a Conversation to the GenerationRequest that the pipeline serves."""

from dataclasses import replace

from starlette.requests import Request

from server.api.conversation import Conversation
from server.api.fields import SamplingFields, sampling_params
from server.api.services import Services, ledger_of, services
from server.api.shaping import shaping_of
from server.api.terms import terms_of
from server.request import GenerationRequest
from server.stages import Stage


async def prepare(
    request: Request,
    conversation: Conversation,
    fields: SamplingFields,
    body_bytes: int,
    *,
    max_tokens: int | None,
    max_tokens_name: str,
    prompt_name: str,
    top_logprobs: int | None = None,
) -> GenerationRequest:
    """Template, tokenize, check against the model; laps VALIDATE and TOKENIZE. Raises InvalidRequest."""
    site, ledger = services(request), ledger_of(request)
    model, parsers = site.engine.model, site.parsers
    terms = terms_of(request)
    conversation.check()
    parsers.check(conversation)
    constraint = conversation.constraint()
    ledger.clock.lap(Stage.VALIDATE)
    text, prompt = await tokenized(site, conversation, body_bytes)
    params = sampling_params(
        fields, model, [prompt], max_tokens=max_tokens, max_tokens_name=max_tokens_name, prompt_name=prompt_name
    )
    site.admission.forecast.tokenized(body_bytes, len(prompt))
    reading = parsers.reading(conversation, text)
    shortened = terms.shortens(params)
    params = replace(
        terms.limit(params),
        logprobs=top_logprobs,
        structured=constraint,
        shaping=await shaping_of(fields, params.temperature, model, site.tokenizers),
        skip_special_tokens=params.skip_special_tokens and not parsers.needs_special_tokens(conversation),
    )
    ledger.clock.lap(Stage.TOKENIZE)
    return GenerationRequest(
        ledger.id,
        [prompt],
        params,
        n=fields.choices,
        streamed=bool(fields.stream),
        reading=replace(reading, return_token_ids=bool(fields.return_token_ids)),
        priority=terms.caller.clamp(fields.priority or 0),
        cache_salt=terms.salt(fields.salt),
        caller=terms.caller,
        timeout=terms.timeout,
        shortened=shortened,
    )


async def tokenized(site: Services, conversation: Conversation, body_bytes: int) -> tuple[str, list[int]]:
    """The prompt's text and its ids; raises InvalidRequest."""
    tokenizer = site.engine.model.tokenizer
    kwargs = site.parsers.template_kwargs(conversation)

    def work() -> tuple[str, list[int]]:
        tools = [tool.for_template() for tool in conversation.offered]
        text = tokenizer.render_chat(conversation.messages, tools=tools, **kwargs)
        return text, tokenizer.encode(text, add_special_tokens=False)

    return await site.tokenizers.run(body_bytes, work)
