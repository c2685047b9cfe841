import threading

import pytest

from sampling.params import SamplingParams
from server.engine.loading import LoadingEngine
from server.engine.protocol import ModelInfo
from server.errors import NotReady
from server.request import EngineRequest
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, chat, serving
from tests.support.waiting import until

REQUEST = EngineRequest("x", [1], SamplingParams(max_tokens=1))


async def test_before_it_has_loaded_nothing_can_be_asked_of_it(engine: FakeEngine) -> None:
    loading = LoadingEngine(lambda: engine)
    assert not loading.alive
    with pytest.raises(NotReady):
        _ = loading.model
    with pytest.raises(NotReady):
        loading.submit(REQUEST, print, print)
    await loading.close()


async def test_once_loaded_it_is_the_engine(engine: FakeEngine, model: ModelInfo) -> None:
    loading = LoadingEngine(lambda: engine)
    await loading.start()
    assert loading.alive
    assert loading.model is model
    assert loading.submit(REQUEST, print, print) is engine.sequences[0]
    await loading.close()
    assert engine.closed


async def test_making_the_engine_does_not_hold_up_the_loop(engine: FakeEngine) -> None:
    may_go_on = threading.Event()

    def create() -> FakeEngine:
        assert may_go_on.wait(20)
        return engine

    async with serving(LoadingEngine(create), ready=False) as site:
        assert (await site.get("/live")).status == 200
        assert (await site.post(CHAT, chat())).status == 503
        may_go_on.set()
        await until(lambda: site.services.ready)
        assert (await site.get("/ready")).status == 200


@pytest.mark.parametrize("where", ["create", "start"])
async def test_an_engine_that_cannot_load_is_told_and_never_ready(model: ModelInfo, where: str) -> None:
    from server.app import build
    from tests.support.asgi import Site, lifespan
    from tests.support.site import settings_of

    def create() -> FakeEngine:
        if where == "create":
            raise RuntimeError("no such model")
        return FakeEngine(model, broken=RuntimeError("no such model"))

    told: list[bool] = []
    app, services = build(settings_of(), engine=LoadingEngine(create), on_load_failed=lambda: told.append(True))
    async with lifespan(app):
        await until(lambda: told)
        assert not services.ready
        answer = await Site(app).get("/ready")
        assert answer.status == 503
        assert b"no such model" not in answer.body
