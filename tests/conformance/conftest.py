from tests.server.conftest import (  # noqa: F401
    garbage_stays_collectable,
    model,
    pytest_asyncio_loop_factories,
    source,
    tokenizer,
)
