"""Composition root: the only place that picks concrete classes."""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio.lowlevel
import structlog
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.types import ASGIApp

from server.admission.admission import Admission
from server.admission.gate import Gate
from server.admission.series import AdmissionSeries
from server.api import chat, completions, errors, messages, models, openapi, ops, responses
from server.api.messages_wire import CountRequest, MessagesRequest
from server.api.responses_store import ResponseStore
from server.api.responses_wire import ResponsesRequest
from server.api.services import Services
from server.config import Settings
from server.engine.loading import LoadingEngine
from server.engine.model_store import ModelStore
from server.engine.protocol import Engine, ModelInfo
from server.engine.runtime import cpu_environment, detect_device
from server.engine.steps import OnEngineStep
from server.engine.tokenizer_pool import TokenizerPool
from server.errors import InvalidRequest
from server.ingress.compression import compressing
from server.ingress.cors import open_to
from server.ingress.guard import Guard
from server.ingress.keyring import KeyRing
from server.ingress.quotas import QuotaGate, Quotas
from server.ingress.request_ids import RequestIds
from server.pipeline import Pipeline
from server.telemetry.device import device_series
from server.telemetry.engine_steps import EngineSteps
from server.telemetry.loop_probe import LoopProbe
from server.telemetry.metrics import Metrics
from server.telemetry.middleware import LedgerMiddleware
from server.telemetry.records import Records

ENDPOINTS = {chat.PATH: "chat", completions.PATH: "completions", messages.PATH: "messages", responses.PATH: "responses"}
BODIES: dict[str, type[BaseModel]] = {
    chat.PATH: chat.ChatRequest,
    completions.PATH: completions.CompletionRequest,
    responses.PATH: ResponsesRequest,
    messages.PATH: MessagesRequest,
    f"{messages.PATH}/count_tokens": CountRequest,
    "/tokenize": models.TokenizeRequest,
    "/detokenize": models.DetokenizeRequest,
}

_log = structlog.get_logger(__name__)


def build(
    settings: Settings, *, engine: Engine | None = None, on_load_failed: Callable[[], None] | None = None
) -> tuple[ASGIApp, Services]:
    """The ASGI application and what its routes work with. `on_load_failed` is told when the model cannot be served.

    Raises ConfigError for keys that cannot be used.
    """
    metrics, steps = Metrics(), EngineSteps()
    engine = engine or LoadingEngine(lambda: create_engine(settings, steps.add))
    keys = KeyRing(settings.keys)
    admission = Admission(settings.admission, max_wait=settings.max_wait)
    kept = settings.responses
    services = Services(
        settings=settings,
        engine=engine,
        pipeline=Pipeline(engine, admission, settings),
        tokenizers=TokenizerPool(),
        metrics=metrics,
        records=Records(settings.telemetry.records),
        responses=ResponseStore(kept.store_bytes, kept.store_count, kept.store_seconds),
    )

    for series in (AdmissionSeries(admission), steps, *device_series()):
        metrics.registry.register(series)
    quotas = Quotas(settings.limits, metrics.registry)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        probe = LoopProbe(services.metrics)
        probe.start()
        keys.start()
        loading = asyncio.create_task(_load(services, on_load_failed), name="load-engine")
        try:
            yield
        finally:
            services.ready = False
            loading.cancel()
            await engine.close()
            await services.pipeline.close()
            await asyncio.wait((loading,), timeout=10)
            services.tokenizers.close()
            await keys.close()
            await quotas.close()
            await probe.close()

    app = FastAPI(title="Streamgauge", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.services = services
    errors.install(app)
    for router in (chat.router, completions.router, messages.router, responses.router, models.router, ops.router):
        app.include_router(router)
    openapi.install(app, BODIES, lambda: engine.model.name if services.ready else None)
    limited = QuotaGate(app, ENDPOINTS, quotas, errors.error_response)
    gate = Gate(limited, admission, ENDPOINTS, errors.error_response, is_open=lambda: services.ready)
    named = RequestIds(Guard(gate, keys, errors.error_response))
    measured = LedgerMiddleware(named, ENDPOINTS, services.metrics, services.records, ledger=settings.telemetry.ledger)
    return open_to(settings.http.cors_origins, compressing(measured)), services


def create_engine(settings: Settings, on_engine_step: OnEngineStep) -> Engine:
    """The configured engine, not started. Blocks while vLLM or transformers are imported, for seconds."""
    chosen = settings.engine
    source = ModelStore().resolve(chosen.model, chosen.precision)
    name = chosen.served_name or chosen.model
    if chosen.kind == "scripted":
        from server.engine.scripted_engine import ScriptedEngine

        return ScriptedEngine(chosen.scripted, source, name)
    os.environ.update(engine_environment(settings, source))  # before the import: vLLM reads it then
    from server.engine.vllm_engine import VllmEngine

    args = {"served_model_name": name, **_thinking(settings), **chosen.args}
    return VllmEngine(source, args, on_engine_step if settings.telemetry.steps else None)


def _thinking(settings: Settings) -> dict[str, Any]:
    """The engine must know when thoughts end: only then does a schema or grammar apply."""
    parser = settings.chat.reasoning_parser
    return {"reasoning_parser": "qwen3" if parser == "think" else parser} if parser else {}


def engine_environment(settings: Settings, source: str) -> dict[str, str]:
    """The variables to set before vLLM is imported: the settings' own, then what suits the device; the user's stay."""
    # As vLLM's own server does: a forked engine would hold our end of its lifeline, and never load our plugin.
    wanted = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"} | settings.engine.env
    chosen = {name: value for name, value in wanted.items() if name not in os.environ}
    if detect_device() == "gpu":
        return chosen
    library_folder = Path(sys.prefix) / "lib"
    local = Path(source).is_dir()
    return (
        cpu_environment({**os.environ, **chosen}, os.sched_getaffinity(0), library_folder, local_model=local) | chosen
    )


async def _warm_up_front_end(model: ModelInfo) -> None:
    """What is compiled or imported at first use, so that the first request does not pay for it."""
    await anyio.lowlevel.checkpoint()
    with suppress(InvalidRequest):  # a model without a chat template
        model.tokenizer.encode(model.tokenizer.render_chat([{"role": "user", "content": "Hello"}]))


async def _load(services: Services, on_failed: Callable[[], None] | None) -> None:
    _log.info("loading", model=services.settings.engine.model, engine=services.settings.engine.kind)
    try:
        await services.engine.start()
        await _warm_up_front_end(services.engine.model)
        await asyncio.to_thread(lambda: services.parsers)  # one that does not exist is found now, vLLM's are imported
    except Exception as error:
        _log.error("load_failed", model=services.settings.engine.model, error=str(error), exc_info=error)
        if on_failed is not None:
            on_failed()
        return
    model = services.engine.model
    services.admission.open(max_num_seqs=model.max_num_seqs, max_batch_tokens=model.max_batch_tokens)
    gc.collect()
    gc.freeze()  # what exists now stays: collections needn't walk it again
    services.ready = True
    http = services.settings.http
    scheme = "http" if http.tls_cert is None else "https"
    _log.info(
        "ready", model=model.name, max_model_len=model.max_model_len, url=f"{scheme}://{http.host}:{http.port}/v1"
    )
