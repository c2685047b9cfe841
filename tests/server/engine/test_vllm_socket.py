"""The reader of the engine's messages, on real ZeroMQ sockets."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
import zmq.asyncio

from server.engine.vllm_socket import MessageReader, start_reading

DEADLINE_S = 10.0


@contextmanager
def a_pair() -> Iterator[tuple[zmq.Socket[bytes], zmq.asyncio.Socket]]:
    """What the engine sends into, and what vLLM's client reads from."""
    context, own = zmq.Context[zmq.Socket[bytes]](), zmq.asyncio.Context()
    reading = own.socket(zmq.PULL)
    port = reading.bind_to_random_port("tcp://127.0.0.1")
    sending = context.socket(zmq.PUSH)
    sending.connect(f"tcp://127.0.0.1:{port}")
    try:
        yield sending, reading
    finally:
        context.destroy(linger=0)
        own.destroy(linger=0)


async def test_messages_come_whole_and_in_order_whether_one_waits_for_them_or_they_for_one() -> None:
    with a_pair() as (sending, reading):
        reader = MessageReader(reading)
        async with asyncio.timeout(DEADLINE_S):
            waiting = asyncio.create_task(reader.recv_multipart())
            await asyncio.sleep(0.02)
            sending.send_multipart([b"first", b"part"])
            assert await waiting == [b"first", b"part"]
            for number in range(3000):
                sending.send(b"%d" % number)
                if number % 1000 == 0:
                    await asyncio.sleep(0.01)
            assert [await reader.recv_multipart() for _ in range(3000)] == [[b"%d" % number] for number in range(3000)]


async def test_an_end_while_waiting_leaves_nothing_watched() -> None:
    with a_pair() as (sending, reading):
        reader = MessageReader(reading)
        waiting = asyncio.create_task(reader.recv_multipart())
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.wait((waiting,))
        assert not reader._watched
        async with asyncio.timeout(DEADLINE_S):  # and one may go on
            sending.send(b"later")
            assert await reader.recv_multipart() == [b"later"]


async def test_what_happens_to_a_socket_that_nobody_reads_does_not_keep_the_loop_busy() -> None:
    with a_pair() as (sending, reading):
        reader = MessageReader(reading)
        sending.send(b"one")
        assert await reader.recv_multipart() == [b"one"]
        waiting = asyncio.create_task(reader.recv_multipart())
        await asyncio.sleep(0.02)
        sending.send(b"two")
        assert await waiting == [b"two"]
        with sending.context.socket(zmq.PUSH) as another:  # a peer makes the descriptor readable
            another.connect(sending.LAST_ENDPOINT.decode())
            await asyncio.sleep(0.2)
            assert not reader._watched
            another.send(b"three")
            async with asyncio.timeout(DEADLINE_S):
                assert await reader.recv_multipart() == [b"three"]


async def test_a_closed_socket_is_an_error() -> None:
    with a_pair() as (_, reading):
        reader = MessageReader(reading)
        reading.close()
        with pytest.raises(zmq.ZMQError):
            await reader.recv_multipart()


async def test_vllms_task_reads_so_and_its_client_keeps_its_socket() -> None:
    used: list[Any] = []
    with a_pair() as (_, reading):
        resources = SimpleNamespace(output_socket=reading)
        client: Any = SimpleNamespace(
            resources=resources, _ensure_output_queue_task=lambda: used.append(resources.output_socket)
        )
        start_reading(client)
        assert isinstance(used[0], MessageReader)
        assert resources.output_socket is reading
