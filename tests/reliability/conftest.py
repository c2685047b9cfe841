from tests.server.conftest import (  # noqa: F401
    engine,
    garbage_stays_collectable,
    model,
    pytest_asyncio_loop_factories,
    scripted,
    source,
    tokenizer,
)
