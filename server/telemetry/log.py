"""Structured logging to standard error: JSON for machines, readable lines for a terminal."""

import logging
import sys
from typing import Literal

import structlog


def configure(form: Literal["auto", "json", "console"], level: str) -> None:
    """Route structlog, and the standard library's loggers, to standard error at `level`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    colors = console and sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer(colors=colors) if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))
