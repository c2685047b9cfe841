"""The engine's messages, read from their ZeroMQ socket without pyzmq's own futures, which cost a quarter of a step that
brings one token."""

import asyncio
from typing import TYPE_CHECKING

import zmq
import zmq.asyncio

if TYPE_CHECKING:
    from vllm.v1.engine.core_client import AsyncMPClient


class MessageReader:
    """What vLLM's output task asks of its socket; one may wait at a time.

    A socket's descriptor turns readable when something has happened to it, and stays so until it has been looked at:
    https://libzmq.readthedocs.io/en/latest/zmq_getsockopt.html (ZMQ_FD).
    """

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Socket.shadow(socket.underlying)
        self._descriptor = self._socket.FD
        self._waiting: asyncio.Future[None] | None = None
        self._watched = False

    async def recv_multipart(self, copy: bool = True) -> list[bytes] | list[zmq.Frame]:
        """The next message; raises zmq.ZMQError when the socket is closed."""
        while True:
            try:
                return self._socket.recv_multipart(zmq.NOBLOCK, copy=copy)
            except zmq.Again:
                await self._until_readable()

    async def _until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        if not self._watched:
            loop.add_reader(self._descriptor, self._wake)
            self._watched = True
        try:
            await self._waiting
        except asyncio.CancelledError:
            self._unwatch()
            raise
        finally:
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is None:  # nobody will look at the socket soon, so this would be called for ever
            self._unwatch()
        elif not self._waiting.done():
            self._waiting.set_result(None)

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._watched = False


def start_reading(client: "AsyncMPClient") -> None:
    """Start the task that fills the client's `outputs_queue`, on a MessageReader; on the loop that will run it."""
    resources = client.resources
    socket = resources.output_socket
    assert isinstance(socket, zmq.asyncio.Socket)
    resources.output_socket = MessageReader(socket)  # type: ignore[assignment]  # the task keeps what it finds here
    try:
        client._ensure_output_queue_task()  # type: ignore[no-untyped-call]
    finally:
        resources.output_socket = socket
