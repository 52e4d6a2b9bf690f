"""Watching apps for a while, with their tools made to compare and apply again and again, and telling what moved."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.controlplane import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.e2e_gitops.world import World

SECONDS = 60.0
#: How often in that time every tool is made to look again.
ROUNDS = 3
_SETTLED_FOR = 4.0

Object = dict[str, Any]


@dataclass(frozen=True)
class App:
    """An app that a tool keeps equal to Git."""

    name: str
    """Of the Application or Kustomization, and of the app's namespace."""
    mode: str
    """A mode of Argo CD, or `flux`."""
    objects: Sequence[Object]

    @property
    def by_flux(self) -> bool:
        """Whether it is Flux that applies it."""
        return self.mode == "flux"


@dataclass
class Seen:
    """What was seen of one app in the time that it was watched."""

    statuses: set[str] = field(default_factory=set)
    """Every status (Argo CD's sync status, Flux's Ready) at any moment."""
    problems: set[str] = field(default_factory=set)
    """Messages of failed comparisons, syncs and reconciles."""
    operations: int = 0
    """Argo CD: syncs that began. Flux: applies that changed an object."""
    looks: int = 0
    """How often the tool compared all of it anew."""
    moved: dict[str, list[str]] = field(default_factory=dict)
    """Objects that got another resourceVersion, and the fields that differ."""


def watch(world: World, apps: Sequence[App], seconds: float = SECONDS) -> dict[str, Seen]:
    """Watch these apps side by side; what is seen of each, by its name.

    That the tools look again is forced: Argo CD by hard refreshes (which render the manifests and compare them anew), Flux
    by requested reconciles. Not before controllers have settled: until no object has changed for a few seconds.
    """
    _settle(world, apps)
    before = {app.name: _live(world, app) for app in apps}
    operations = {app.name: _operations(world, app) for app in apps}
    seen = {app.name: Seen() for app in apps}
    ended = threading.Event()
    poller = threading.Thread(target=_poll, args=(world, apps, seen, ended), daemon=True)
    began = time.monotonic()
    poller.start()
    try:
        for turn in range(ROUNDS):
            _look_again(world, apps)
            for app in apps:
                seen[app.name].looks += 1
            ended.wait(max(0.0, began + seconds * (turn + 1) / ROUNDS - time.monotonic()))
    finally:
        ended.set()
        poller.join()
    for app in apps:
        after = _live(world, app)
        seen[app.name].moved = dict(_differences(before[app.name], after))
        seen[app.name].operations = _operations(world, app) - operations[app.name]
    return seen


def _look_again(world: World, apps: Sequence[App]) -> None:
    flux = [app.name for app in apps if app.by_flux]
    argo = [app.name for app in apps if not app.by_flux]
    world.argo.refresh(*argo)
    if flux:
        world.flux.reconcile(*flux)


def _operations(world: World, app: App) -> int:
    if app.by_flux:
        return sum(any(done != "unchanged" for done in output.values()) for output in world.flux.applied(app.name))
    return world.argo.operations(app.name)


def _poll(world: World, apps: Sequence[App], seen: Mapping[str, Seen], ended: threading.Event) -> None:
    while not ended.wait(0.5):
        for app in apps:
            status, problems = _status(world, app)
            seen[app.name].statuses.add(status)
            seen[app.name].problems |= problems


def _status(world: World, app: App) -> tuple[str, set[str]]:
    if app.by_flux:
        ready = world.flux.ready(app.name)
        # While it reconciles, Ready is Unknown with reason Progressing: no word on the outcome.
        status = "True" if ready.get("reason") == "Progressing" else ready.get("status", "")
        return status, set() if status == "True" else {ready.get("message", "")}
    found = world.argo.status(app.name)
    problems = {one["message"] for one in found.get("conditions") or []}
    return (found.get("sync") or {}).get("status", ""), problems


def _live(world: World, app: App) -> dict[str, Object | None]:
    return {f"{one['kind']}/{one['metadata']['name']}": world.get(one) for one in app.objects}


def _settle(world: World, apps: Sequence[App]) -> None:
    """Wait until nothing has changed for a few seconds."""
    last: list[Any] = []
    since = time.monotonic()

    def quiet() -> bool:
        nonlocal since
        now = [(one or {}).get("metadata", {}).get("resourceVersion") for app in apps for one in _live(world, app).values()]
        if now != last:
            last[:] = now
            since = time.monotonic()
        return time.monotonic() - since >= _SETTLED_FOR

    wait_until(quiet, 180, "the objects to settle", interval=0.5)


def _differences(before: Mapping[str, Object | None], after: Mapping[str, Object | None]) -> Iterator[tuple[str, list[str]]]:
    for name, old in before.items():
        new = after[name]
        versions = [(one or {}).get("metadata", {}).get("resourceVersion") for one in (old, new)]
        if versions[0] != versions[1]:
            yield name, sorted(_changed(old, new))


def _changed(old: Any, new: Any, place: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key != "managedFields":
                yield from _changed(old.get(key), new.get(key), f"{place}.{key}")
    elif old != new:
        yield f"{place}: {old!r} -> {new!r}"[:300]
