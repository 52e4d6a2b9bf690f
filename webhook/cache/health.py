"""Log how far each watch has come, and tell the snapshot which facts are out of date."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gpugate.webhook.cache.staleness import out_of_date, unreadable
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.reflector import Reflector
from gpugate.webhook.runtime.log import Log


async def look_after(watchers: Sequence[Reflector], store: SnapshotStore, log: Log) -> None:
    """Say in the log when the state of a watcher changes, and in the facts when one is out of date."""
    seen: dict[str, tuple[str, str | None]] = {}
    while True:
        for watcher in watchers:
            state = watcher.state
            now = (state.phase, state.error)
            if seen.get(state.resource) != now:
                seen[state.resource] = now
                tell = log.info if state.phase in {"pending", "synced", "absent"} else log.warning
                tell("watch", kind=state.kind, resource=state.resource, phase=state.phase, objects=state.objects, error=state.error)
        states = [watcher.state for watcher in watchers]
        store.mark_stale(out_of_date(states, time.monotonic()), unreadable(states))
        await asyncio.sleep(1.0)
