"""Operation: liveness, readiness, load, version, metrics, and the ledgers of finished requests."""

from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from server.api.services import services

router = APIRouter()


@router.get("/live")
async def live() -> dict[str, str]:
    """The process answers; says nothing about the engine."""
    return {"status": "live"}


@router.get("/ready")
@router.get("/health")
async def ready(request: Request) -> dict[str, Any]:
    """200 while requests are generated; 503 while loading, draining, stalled, and after the engine has died.

    `last_step_age_s`: how long ago the engine made progress; null while it has nothing to do.
    """
    site = services(request)
    site.check_ready()
    age = site.step_age
    return {
        "status": "ready",
        "last_step_age_s": None if age is None else round(age, 3),
        "running_sequences": site.admission.slots.in_use,
        "queued_requests": len(site.admission.queue),
    }


@router.get("/load")
async def load(request: Request) -> dict[str, int]:
    """Requests being served, by the name vLLM's server gives it."""
    return {"server_load": services(request).metrics.in_flight}


@router.get("/version")
async def show_version() -> dict[str, str]:
    return {"version": version("streamgauge")}


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Our series, then those of the process and of vLLM."""
    own = services(request).metrics.registry
    return Response(generate_latest(own) + generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


@router.get("/debug/requests")
async def debug_requests(request: Request, limit: Annotated[int, Query(ge=1, le=10_000)] = 20) -> dict[str, Any]:
    """Ledgers of the last finished requests, newest first."""
    return {"requests": services(request).records.latest(limit)}
