"""vLLM's compiled models, loaded from its cache where vLLM 0.32 would compile them anew at every start.

On a CPU torch alone compiles the model (DYNAMO_TRACE_ONCE). What vLLM saves of it loads well, but then it asks the
compiled function to `finalize_loading`, which only its own backend's functions can, takes the AttributeError for a
cache that cannot be read, and spends 50 s again (`vllm.compilation.decorators._try_load_aot_compiled_fn`).
"""

from functools import wraps
from typing import Any

import torch


def install() -> None:
    """Give functions without it a `finalize_loading` that has nothing to do."""
    load = torch.compiler.load_compiled_function

    @wraps(load)
    def loaded(*args: Any, **kwargs: Any) -> Any:
        function: Any = load(*args, **kwargs)
        compiled = function._artifacts.compiled_fn
        if not hasattr(compiled, "finalize_loading"):
            compiled.finalize_loading = lambda vllm_config: None
        return function

    torch.compiler.load_compiled_function = loaded
