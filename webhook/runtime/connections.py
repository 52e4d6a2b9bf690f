"""Accept connections up to a number, and close those that nothing comes from."""

import asyncio
import errno
import resource
import socket
import ssl
import time
from collections import Counter
from enum import IntEnum
from typing import Any, Final

from aiohttp import web

from gpugate.webhook.runtime.log import Log

#: Connections at once. An apiserver has one for each review that it waits for, and keeps at most 25 idle ones.
MOST_CONNECTIONS: Final = 512
#: Seconds from the connection to the end of the TLS handshake, and to the end of the first request's head.
_HANDSHAKE: Final = 10.0
_HEAD: Final = 10.0
#: Seconds that an idle connection stays open: longer than the apiserver's own limit of 90, so that it never sends a review on a
#: connection that is being closed.
_IDLE: Final = 120
#: Seconds until an answer that the client does not read is given up.
_UNREAD: Final = 30.0
#: Age in seconds from which a connection without a request is closed for a new one before idle ones are, and seconds after an
#: answer in which a connection is not idle yet: its client is likely to send the next review.
_FRESH: Final = 1.0
#: Seconds between two looks at all connections.
_INTERVAL: Final = 1.0
#: Connections accepted in one turn of the event loop. Each costs a TLS handshake, more than a usual review: accepted all at
#: once, the connections of a burst would take the time for the reviews of the others.
_ACCEPTS: Final = 2
#: State of a connection in Linux's TCP_INFO whose client is still there.
_ESTABLISHED: Final = 1
#: Seconds without new connections after the process ran out of file descriptors, and between two log lines about it.
_PAUSE: Final = 0.1
_SILENCE: Final = 10.0
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: Buffers of a connection in the kernel (which doubles it) and in aiohttp. Bytes.
_BUFFER: Final = 64 * 1024
#: Limits of a request's head. The apiserver sends fewer than ten short headers, one of them perhaps a token.
_HTTP: Final[dict[str, Any]] = {
    "access_log": None,
    "keepalive_timeout": _IDLE,
    "max_headers": 32,
    "read_bufsize": _BUFFER // 2,
    "lingering_time": 2.0,
}


class State(IntEnum):
    """What a connection waits for; a smaller number is closed before a larger one if there are too many."""

    NO_REQUEST = 0
    IDLE = 1
    FRESH = 2
    RECENT = 3
    BODY = 4
    BUSY = 5


class Connection(web.RequestHandler):
    """One connection, from its acceptance to its end."""

    def __init__(self, manager: web.Server, listener: "Listener", **options: Any) -> None:  # noqa: ANN401 - aiohttp's own
        super().__init__(manager, **options)
        self.opened = time.monotonic()
        self.unread_since = 0.0
        self.handshake: asyncio.Task[None] | None = None
        self._listener = listener

    async def start(self) -> None:
        """Serve the connection, unless it was lost before its first turn: aiohttp would fail on an assertion."""
        if self._manager is not None:
            await super().start()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._listener.forget(self)

    def state(self, now: float) -> tuple[State, float]:
        """Return what the connection waits for, and since when."""
        if self._request_count == 0:
            return State.NO_REQUEST if now - self.opened > _FRESH else State.FRESH, self.opened
        request = self._current_request
        if request is not None:
            return State.BUSY if request.content.is_eof() else State.BODY, self._next_keepalive_close_time
        if self._waiter is None or self._waiter.done():
            return State.BUSY, self._next_keepalive_close_time
        answered = self._next_keepalive_close_time - _IDLE
        return State.IDLE if now - answered > _FRESH else State.RECENT, answered

    def abort(self) -> None:
        """Close at once, without waiting for the client."""
        if self.handshake is not None:
            self.handshake.cancel()
        elif self.transport is not None:
            self.transport.abort()


class Listener(web.BaseSite):
    """Listens at addresses for a runner, and bounds the connections.

    Attributes:
        closed: connections that were closed or not accepted, by reason.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        address: tuple[str, int],
        log: Log,
        context: ssl.SSLContext | None = None,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        """Serve ``runner`` at ``address`` (port 0: any free one), over TLS with ``context``, to at most ``most`` connections."""
        super().__init__(runner, ssl_context=context)
        self._address, self._log, self._context = address, log, context
        # Half of the descriptors stay for watches, files and connections that are being closed.
        self._most = max(1, min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._connections: dict[Connection, None] = {}
        self._quiet_until = float("-inf")
        self._sweeping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """Return the URL of the address."""
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://{self._address[0]}:{self.port}"

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else self._address[1]

    @property
    def number(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    @property
    def most(self) -> int:
        """Return the largest number of connections."""
        return self._most

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        await super().start()
        host, port = self._address
        found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            self._sockets.append(listening)
            listening.setblocking(False)  # noqa: FBT003 - its only parameter
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Connections inherit it. Larger ones hold more memory and read a large body in fewer turns.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            listening.bind(address)
            listening.listen(1024)
        self._resume()
        self._sweeping = self._loop.call_later(_INTERVAL, self._sweep)

    async def stop(self) -> None:
        """Stop accepting, and end handshakes; other connections stay."""
        await super().stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in self._tasks:
            task.cancel()

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._connections.pop(connection, None)

    def _resume(self) -> None:
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        left = _ACCEPTS
        while left:
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._failed_accept(error)
                return
            if accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED:
                # The client has given up while it waited: a handshake would be in vain.
                self.closed["gone"] += 1
                accepted.close()
                continue
            if len(self._connections) >= self._most and not self._evict():
                self.closed["refused"] += 1
                accepted.close()
                continue
            left -= 1
            accepted.setblocking(False)  # noqa: FBT003 - its only parameter
            server = self._runner.server
            assert server is not None  # noqa: S101 - the runner was set up
            connection = Connection(server, self, loop=self._loop, **_HTTP)
            self._connections[connection] = None
            task = self._loop.create_task(self._open(connection, accepted))
            connection.handshake = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        options = {} if self._context is None else {"ssl_handshake_timeout": _HANDSHAKE, "ssl_shutdown_timeout": _FRESH}
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._context, **options)
        except (OSError, asyncio.CancelledError):
            # The client left, speaks no TLS or was too slow.
            self.forget(connection)
            connection.connection_lost(None)
        finally:
            connection.handshake = None

    def _failed_accept(self, error: OSError) -> None:
        """Close a connection for the next one, and say so: the process is out of descriptors or memory."""
        self.closed["exhausted"] += 1
        if error.errno in _EXHAUSTED:
            self._evict()
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _SILENCE
            self._log.error("cannot accept connections", error=error.strerror or str(error), connections=len(self._connections))
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        self._loop.call_later(_PAUSE, self._resume)

    def _evict(self) -> bool:
        """Close the connection that has waited longest for its client; return whether there is one."""
        now = time.monotonic()
        (state, _), connection = min(
            ((connection.state(now), connection) for connection in self._connections),
            key=lambda found: found[0],
            default=((State.BUSY, now), None),
        )
        if connection is None or state is State.BUSY:
            return False
        self.closed["evicted"] += 1
        self.forget(connection)
        connection.abort()
        return True

    def _sweep(self) -> None:
        """Close connections without a request, and those that do not read their answer."""
        self._sweeping = self._loop.call_later(_INTERVAL, self._sweep)
        now = time.monotonic()
        for connection in list(self._connections):
            if connection.state(now)[0] is State.NO_REQUEST and now - connection.opened > _HEAD:
                self.closed["head"] += 1
                connection.abort()
            elif not connection.writing_paused:
                connection.unread_since = now
            elif now - connection.unread_since > _UNREAD:
                self.closed["unread"] += 1
                connection.abort()
