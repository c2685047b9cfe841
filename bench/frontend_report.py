"""What front ends came to at one number of streams: figures per arm, with each arm's A/A width."""

from collections.abc import Callable, Sequence
from statistics import median

from bench.compare_report import BASE_ARM, Pool, Ratio, Visit, aa_width, ratios
from bench.sample import RequestSample
from bench.stages import STAGES

# From the engine's stamp to the bytes being with the transport, in the server's own ledger.
ADDED = STAGES[STAGES.index("transfer") :]

Figure = Callable[[Pool], float | None]


def _per_event(per_token: float | None, pool: Pool) -> float | None:
    tokens_per_event = pool.summary.tokens_per_event
    return None if per_token is None or tokens_per_event is None else per_token * tokens_per_event


def _api_us(pool: Pool) -> float | None:
    return pool.per_token_us(lambda visit: visit.api_cpu.run_ns)


def _api_us_per_request(pool: Pool) -> float | None:
    completed = pool.summary.completed
    return sum(visit.api_cpu.run_ns for visit in pool.visits) / 1e3 / completed if completed else None


def _engine_us(pool: Pool) -> float | None:
    """The two are not read at the same instant, so that a server of one process may come out below zero."""
    return pool.per_token_us(lambda visit: max(visit.tree_cpu.run_ns - visit.api_cpu.run_ns, 0))


def _client_us(pool: Pool) -> float | None:
    return pool.per_token_us(lambda visit: visit.client_cpu_ns)


def _events_per_s(pool: Pool) -> float | None:
    tokens_per_event = pool.summary.tokens_per_event
    return None if tokens_per_event is None else pool.summary.output_tokens_per_s / tokens_per_event


def _timed(pool: Pool) -> list[RequestSample]:
    """Of our server alone: the floor repeats the times of the stream that it was given."""
    ours = [sample for visit in pool.visits if visit.arm == BASE_ARM for sample in visit.samples]
    return [sample for sample in ours if sample.ok and sample.timings is not None]


def _engine_to_socket_us(pool: Pool) -> float | None:
    """Per event: the stages behind the engine's stamp, over all timed requests."""
    timings = [sample.timings for sample in _timed(pool) if sample.timings is not None]
    events = sum(timing["events"] for timing in timings)
    spent_ms = sum(timing["stages_ms"][stage] for timing in timings for stage in ADDED)
    return 1e3 * spent_ms / events if events else None


def _socket_to_read_us(pool: Pool) -> float | None:
    """The median of what the client's time has over the server's: the way of the request is in it, so at most."""
    over = [
        sample.e2e_ns / 1e3 - sample.timings["wall_ms"] * 1e3
        for sample in _timed(pool)
        if sample.timings is not None and sample.e2e_ns is not None
    ]
    return median(over) if over else None


FIGURES: dict[str, Figure] = {
    "events/s": _events_per_s,
    "tokens/event": lambda pool: pool.summary.tokens_per_event,
    "API process, CPU µs/token": _api_us,
    "API process, CPU µs/event": lambda pool: _per_event(_api_us(pool), pool),
    "API process, CPU µs/request": _api_us_per_request,
    "engine processes, CPU µs/token": _engine_us,
    "engine processes, CPU µs/event": lambda pool: _per_event(_engine_us(pool), pool),
    "client, CPU µs/token": _client_us,
    "client, CPU µs/event": lambda pool: _per_event(_client_us(pool), pool),
    "engine stamp → socket, µs/event": _engine_to_socket_us,
    "socket → client read, µs, at most": _socket_to_read_us,
    "requests failed": lambda pool: float(pool.summary.requests - pool.summary.completed),
}

# Of this project's server to each arm: one ratio per round, of both visits together.
RATIOS = {
    "ours / this, API process, CPU/token": "api_cpu_us_per_token",
    "ours / this, all its processes, CPU/token": "tree_cpu_us_per_token",
}


def arms(visits: Sequence[Visit]) -> list[str]:
    """In the order of their first visits."""
    return list(dict.fromkeys(visit.arm for visit in visits))


def figures(visits: Sequence[Visit]) -> dict[str, dict[str, dict[str, float | None]]]:
    """By arm and figure: `value` over all its visits, and `aa_width`, the most that two visits of a round differ."""
    pools = {arm: Pool([visit for visit in visits if visit.arm == arm]) for arm in arms(visits)}
    return {
        arm: {
            name: {"value": figure(pool), "aa_width": aa_width(pool.visits, [arm], figure)}
            for name, figure in FIGURES.items()
        }
        for arm, pool in pools.items()
    }


def table(visits: Sequence[Visit]) -> str:
    """Markdown: a row per figure, a column per arm, the A/A width behind each value; then ratios with their spread."""
    found, against = figures(visits), ratios(visits)
    lines = [["(A/A width)", *found], ["---"] + ["---:"] * len(found)]
    lines += [[name, *(_cell(**found[arm][name]) for arm in found)] for name in FIGURES]
    lines += [[title, *(_ratio(against.get(arm, {}).get(name)) for arm in found)] for title, name in RATIOS.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: float | None, aa_width: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if aa_width is None else f"{value:.4g} ({aa_width:.1%})"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    values = ratio.per_round
    return f"{median(values):.3f} [{min(values):.3f}–{max(values):.3f}]"
