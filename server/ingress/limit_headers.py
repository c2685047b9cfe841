"""How a limit stands, in OpenAI's response headers: x-ratelimit-{limit,remaining,reset}-{requests,tokens}."""

from dataclasses import dataclass

from server.ingress.windows import Level


@dataclass(frozen=True, slots=True)
class Standing:
    """`reset_s`: seconds until all of the limit is free again, when nothing more is used."""

    limit: int
    remaining: int
    reset_s: float


def standing(limit: int, level: Level) -> Standing:
    return Standing(limit, max(limit - level.used, 0), level.wait(limit, limit))


def limit_headers(kind: str, standing: Standing) -> dict[str, str]:
    """`kind` is requests or tokens."""
    return {
        f"x-ratelimit-limit-{kind}": str(standing.limit),
        f"x-ratelimit-remaining-{kind}": str(standing.remaining),
        f"x-ratelimit-reset-{kind}": duration(standing.reset_s),
    }


def duration(seconds: float) -> str:
    """As OpenAI writes it, in whole milliseconds: `20ms`, `1.5s`, `6m0s`."""
    ms = round(seconds * 1000)
    if 0 < ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    return f"{minutes}m{ms / 1000:g}s" if minutes else f"{ms / 1000:g}s"
