"""Listen at an address, wait for a signal, and end in order."""

import asyncio
import signal
import ssl
from collections.abc import Iterable, Sequence

from aiohttp import web

from gpugate.webhook.runtime.connections import Listener
from gpugate.webhook.runtime.errors import InputError
from gpugate.webhook.runtime.log import Log


async def listen(
    runner: web.BaseRunner,
    host: str,
    port: int,
    log: Log,
    context: ssl.SSLContext | None = None,
    *,
    message: str = "listening",
    option: str = "--listen",
    **fields: str,
) -> Listener:
    """Serve at ``host`` and ``port`` (0: any free one), and log ``message`` with the address and ``fields``.

    ``option`` is the option of the command line that gave the address.

    Raises:
        InputError: the address cannot be bound.
    """
    await runner.setup()
    listener = Listener(runner, (host, port), log, context)
    try:
        await listener.start()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = f"{option} {host}:{port}: cannot listen there: {reason}; give another HOST:PORT"
        raise InputError(problem) from None
    log.info(message, address=f"{host}:{listener.port}", **fields)
    log.flush()
    return listener


async def until_signal(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for SIGTERM or SIGINT, or for a task that should never end."""
    loop = asyncio.get_running_loop()
    ending = loop.create_future()

    def end() -> None:
        if not ending.done():
            ending.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        if isinstance(task, asyncio.Task):
            task.result()


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` and wait for their end; their errors are not raised."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)
    for task in ending:
        if not task.cancelled():
            task.exception()  # mark as retrieved, else asyncio logs it
