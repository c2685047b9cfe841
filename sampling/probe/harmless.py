"""A probe must not break what it looks at."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

P = ParamSpec("P")


def harmless(method: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """The method of a probe, which sets its `off`, with one line in the log, instead of raising."""

    @wraps(method)
    def guarded(self: Any, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.off:
            return
        try:
            method(self, *args, **kwargs)
        except Exception:
            self.off = True
            logging.getLogger("vllm.streamgauge").exception("The step probe failed and is off from here on.")

    return cast(Callable[Concatenate[Any, P], None], guarded)
