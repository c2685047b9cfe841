from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from server.app import build
from server.config import Settings
from server.engine import scripted_engine
from server.engine.model_store import SMOLLM2_135M, ModelStore
from server.engine.protocol import ModelInfo
from server.engine.tokenizer import FolderTokenizer
from tests.support.engines import FakeEngine
from tests.support.site import FakeSite, Opener, ScriptedSite

MODEL = SMOLLM2_135M.name
