"""A compiled model is loaded from vLLM's cache instead of being compiled anew."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sampling import compile_cache


def loading(monkeypatch: pytest.MonkeyPatch, compiled: Any) -> Any:
    """What torch would load, through what is installed."""
    function = SimpleNamespace(_artifacts=SimpleNamespace(compiled_fn=compiled))
    monkeypatch.setattr(torch.compiler, "load_compiled_function", lambda file, *, f_globals: function)
    compile_cache.install()
    return torch.compiler.load_compiled_function("file", f_globals={})  # type: ignore[arg-type]


def test_a_function_of_torchs_own_backend_can_be_finalized(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled() -> int:
        return 7

    found = loading(monkeypatch, compiled)
    found._artifacts.compiled_fn.finalize_loading("vllm's config")
    assert found._artifacts.compiled_fn() == 7


def test_one_of_vllms_backend_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    compiled = SimpleNamespace(finalize_loading=told.append)
    loading(monkeypatch, compiled)._artifacts.compiled_fn.finalize_loading("config")
    assert told == ["config"]


def test_vllm_still_asks_for_it() -> None:
    """When this fails, vLLM may have mended it, and sampling/compile_cache.py can go."""
    from inspect import getsource

    from vllm.compilation import decorators

    source = getsource(decorators._try_load_aot_compiled_fn)
    assert "torch.compiler.load_compiled_function(" in source
    assert "_artifacts.compiled_fn.finalize_loading(" in source
