from collections.abc import AsyncIterator, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from server import app
from server.config import ScriptedSettings
from server.engine import scripted_engine
from server.engine.model_store import ModelStore
from server.engine.protocol import ModelInfo
from server.engine.scripted_engine import ScriptedEngine
from server.engine.tokenizer import FolderTokenizer
from tests.support.engines import FakeEngine
from tests.support.site import MODEL, Served, serving

MakeScripted = Callable[..., ScriptedEngine]


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Any]:
    return {"uvloop": uvloop.new_event_loop}  # the loop that serves


@pytest.fixture(autouse=True)
def garbage_stays_collectable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What suits one server per process would make hundreds of them slow, and their garbage immortal."""
    monkeypatch.setattr(app, "gc", SimpleNamespace(collect=lambda: 0, freeze=lambda: None))


@pytest.fixture(scope="session")
def source() -> str:
    """The default model's folder."""
    return ModelStore().resolve(MODEL)


@pytest.fixture(scope="session")
def tokenizer(source: str) -> FolderTokenizer:
    return FolderTokenizer(source)


@pytest.fixture(scope="session")
def model(source: str, tokenizer: FolderTokenizer) -> ModelInfo:
    return ModelInfo(
        name=MODEL,
        root=source,
        max_model_len=512,
        vocab_size=tokenizer.backend.get_vocab_size(),
        tokenizer=tokenizer,
        default_sampling={"temperature": 0.2, "top_p": 0.9},
    )


@pytest.fixture
def engine(model: ModelInfo) -> FakeEngine:
    return FakeEngine(model)


@pytest.fixture
async def site(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    """A ready application on default settings; the test drives its engine by hand."""
    async with serving(engine) as served:
        yield served


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, source: str, tokenizer: FolderTokenizer) -> MakeScripted:
    """Makes scripted engines that take no time unless told to, and share one tokenizer."""
    monkeypatch.setattr(scripted_engine, "FolderTokenizer", lambda _: tokenizer)

    def make(**settings: Any) -> ScriptedEngine:
        return ScriptedEngine(ScriptedSettings(**{"step_ms": 0, **settings}), source, MODEL)

    return make
