from pathlib import Path

import pytest

from bench.arms import ArmError
from bench.frontend_recording import Recording, record
from tests.bench.bytes import DONE, SSE_HEAD, chat_event, chunked, playing, usage_event

WRITES = [chat_event("a"), chat_event("é"), usage_event(2) + DONE]


async def test_a_stream_is_recorded_as_the_server_cut_it() -> None:
    async with playing(SSE_HEAD + chunked(*WRITES)) as port:
        assert await record(port, "/v1/chat/completions", b"{}", 60) == WRITES


async def test_what_follows_the_last_token_follows_its_step() -> None:
    assert Recording.of(WRITES, 2).steps == [[WRITES[0]], [WRITES[1], WRITES[2]]]
    assert Recording.of(WRITES, 3).steps == [[write] for write in WRITES]


async def test_a_stream_of_fewer_writes_than_tokens_keeps_a_write_per_step() -> None:
    assert Recording.of(WRITES, 10).steps == [[write] for write in WRITES]


def test_a_recording_is_kept_in_a_file(tmp_path: Path) -> None:
    recording = Recording.of(WRITES, 2)
    recording.save(tmp_path / "stream.json")
    assert Recording.load(tmp_path / "stream.json") == recording


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + DONE,
        SSE_HEAD + chunked(*WRITES)[:-20],
        SSE_HEAD + b"zz\r\n",
        b"hello\r\n\r\n",
        b"",
    ],
)
async def test_anything_but_a_whole_chunked_stream_is_refused(answer: bytes) -> None:
    async with playing(answer) as port:
        with pytest.raises(ArmError, match="no stream to record"):
            await record(port, "/v1/chat/completions", b"{}", 60)
