import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from bench.arms import ArmError
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Spec
from bench.tune.trial import Stand
from tests.support.results import SPEC, completed, result

SERVER = """
import sys
from http.server import ThreadingHTTPServer
from tests.bench.fake_server import Handler
if "max_num_seqs: 13" in open(sys.argv[sys.argv.index("--config") + 1]).read():
    sys.exit("no such number")
port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
COMMAND = (sys.executable, "-c", SERVER)
SETTINGS = {"engine": {"args": {"max_num_seqs": 2}}, "keys": {"file": "keys.yaml"}, "limits": {"storage": "redis://x"}}
SEQUENCES = "engine.args.max_num_seqs"


def put_all(folder: Path, *each: dict[str, int]) -> list[Spec]:
    asked: list[Spec] = []

    async def load(spec: Spec, on_progress: Callable[[Progress], None]) -> Result:
        asked.append(spec)
        return result([completed()], spec=spec)

    async def whole() -> None:
        stand = Stand(SETTINGS, folder, command=COMMAND, load=load)
        try:
            for changes in each:
                await stand.put(changes, SPEC, lambda progress: None)
        finally:
            await stand.close()

    asyncio.run(whole())
    return asked


def test_a_server_is_started_anew_only_when_its_settings_change(tmp_path: Path) -> None:
    asked = put_all(tmp_path, {}, {SEQUENCES: 8}, {SEQUENCES: 8}, {})
    assert sorted(path.name for path in tmp_path.glob("*.yaml")) == [f"server-0{number}.yaml" for number in range(3)]
    assert asked[1].url == asked[2].url and len({spec.url for spec in asked}) >= 2
    assert {spec.model for spec in asked} == {"fake"}


def test_a_server_gets_the_settings_with_the_changes_and_without_keys_and_limits(tmp_path: Path) -> None:
    put_all(tmp_path, {SEQUENCES: 8})
    assert yaml.safe_load((tmp_path / "server-00.yaml").read_text()) == {"engine": {"args": {"max_num_seqs": 8}}}


def test_a_server_that_does_not_come_up_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(ArmError, match="no such number"):
        put_all(tmp_path, {SEQUENCES: 13})
