"""The control plane's programs: built from their Go modules, once, into a cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.controlplane.crds import CLUSTER_MODULES, JOB_KIND_MODULES, REPORT_MODULES, VOLCANO
from tests.e2e.controlplane.toolchain import Go, find_go

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MODULES = Path(__file__).resolve().parent.parent / "go"


@dataclass(frozen=True)
class GoBuild:
    """Programs that come from one go.mod."""

    name: str
    """The folder of the go.mod."""
    programs: Mapping[str, str]
    """Name of each program, and its Go package."""
    stamps: Mapping[str, str]
    """String variables that the linker sets."""
    sources: tuple[str, ...] = ()
    """Modules whose folders hold manifests that are read at run time."""
    modules: Path = MODULES
    """The folder that holds the folder of the go.mod."""

    @property
    def folder(self) -> Path:
        """Where the go.mod and go.sum are."""
        return self.modules / self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """What `go build` is told."""
        stamps = "".join(f" -X {variable}={value}" for variable, value in self.stamps.items())
        return ("-trimpath", "-buildvcs=false", "-ldflags", f"-s -w{stamps}")

    def key(self) -> str:
        """Hash over everything that decides what is built."""
        digest = hashlib.sha256()
        for part in (
            (self.folder / "go.mod").read_bytes(),
            (self.folder / "go.sum").read_bytes(),
            *(path.read_bytes() for path in sorted(self.folder.glob("*.go"))),
            json.dumps([self.flags, sorted(self.programs.items())]).encode(),
            f"{platform.system()} {platform.machine()}".encode(),
        ):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:16]


def _version(name: str, module: str) -> str:
    """The version of a module that the go.mod requires, as in v1.2.3."""
    found = re.search(rf"^(?:require|\t)\s*{re.escape(module)} (v\S+)", (MODULES / name / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise RuntimeError(f"{MODULES / name / 'go.mod'} does not require {module}")
    return found[1]


def _kubernetes_stamps() -> dict[str, str]:
    """What the apiserver says its version is: of a library, as here, it would otherwise say v0.0.0."""
    version = _version("kubernetes", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{name}": value for package in packages for name, value in values.items()}


BUILDS = (
    GoBuild("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, {}),
    GoBuild(
        "kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        _kubernetes_stamps(),
    ),
    GoBuild("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, {}, ("sigs.k8s.io/kwok",)),
    GoBuild(
        "kueue",
        {"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        {"sigs.k8s.io/kueue/pkg/version.GitVersion": _version("kueue", "sigs.k8s.io/kueue")},
        ("sigs.k8s.io/kueue", *JOB_KIND_MODULES),
    ),
    # Of Volcano only the definition of its Job is used, but for the tests of gangs.
    GoBuild("volcano", {}, {}, (VOLCANO,)),
    # Of these only the definitions of reports are used.
    GoBuild("reports", {}, {}, REPORT_MODULES),
)
#: Definitions that only the tests of `manifests/cluster` need; nothing is built.
CLUSTER_BUILD = GoBuild("cluster", {}, {}, CLUSTER_MODULES)
#: The gang schedulers, for the tests that need them.
COSCHEDULING = "sigs.k8s.io/scheduler-plugins"
GANG_BUILDS = (
    GoBuild(
        "volcano",
        {"volcano-scheduler": f"{VOLCANO}/cmd/scheduler", "volcano-controllers": f"{VOLCANO}/cmd/controller-manager"},
        {},
        (VOLCANO,),
    ),
    GoBuild("coscheduling", {"coscheduling-scheduler": f"{COSCHEDULING}/cmd/scheduler"}, {}, (COSCHEDULING,)),
)


@dataclass(frozen=True)
class Programs:
    """Where everything that was built is."""

    paths: Mapping[str, Path]
    """Program name to executable."""
    sources: Mapping[str, Path]
    """Go module to the folder with its sources and manifests."""

    def __getitem__(self, name: str) -> Path:
        """The executable of this name."""
        return self.paths[name]


def cache_folder() -> Path:
    """Where builds are kept: GPUGATE_E2E_CACHE, or a folder under the user's own cache."""
    chosen = os.environ.get("GPUGATE_E2E_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "gpugate" / "e2e"


def find_programs(*, kueue: bool = True) -> Programs:
    """Everything a control plane runs, built first where the cache does not hold it."""
    builds: list[GoBuild] = []
    assets = _assets()
    for whole in BUILDS:
        if whole.name == "kueue" and not kueue:
            continue
        wanted = {name: package for name, package in whole.programs.items() if name not in assets}
        if wanted or not whole.programs:
            builds.append(replace(whole, programs=wanted))
    built = build_all(builds)
    return Programs({**built.paths, **assets}, built.sources)


def build_all(builds: Iterable[GoBuild]) -> Programs:
    """The programs of these builds, built first where the cache does not hold them."""
    paths: dict[str, Path] = {}
    sources: dict[str, Path] = {}
    for build in builds:
        folder = _ensure(build)
        paths.update({name: folder / name for name in build.programs})
        sources.update(_sources(build, folder))
    return Programs(paths, sources)


def _assets() -> dict[str, Path]:
    """The etcd and kube-apiserver in KUBEBUILDER_ASSETS, if it is set: they are used instead of built."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    found = {name: Path(folder).absolute() / name for name in ("etcd", "kube-apiserver")}
    return {name: path for name, path in found.items() if os.access(path, os.X_OK)}


def _ensure(build: GoBuild) -> Path:
    """The folder with the build's programs. It appears under its final name only when it is complete."""
    folder = cache_folder() / f"{build.name}-{build.key()}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        if folder.is_dir():  # another run built it while we waited
            return folder
        go = _go()
        begun = time.monotonic()
        if build.programs:
            _say(f"building {', '.join(build.programs)} with {go.command} ...")
        scratch = Path(tempfile.mkdtemp(prefix=f".{build.name}-", dir=folder.parent))
        try:
            for name, package in build.programs.items():
                go.run("build", *build.flags, "-o", str(scratch / name), package, cwd=build.folder)
                _say(f"  {name}: {time.monotonic() - begun:.0f} s since the start of this build")
            scratch.chmod(0o755)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _sources(build: GoBuild, folder: Path) -> dict[str, Path]:
    """Folders of the modules with manifests; looked up once, and again only if a module cache was cleaned."""
    if not build.sources:
        return {}
    record = folder / "sources.json"
    if record.exists():
        known = {module: Path(path) for module, path in json.loads(record.read_text()).items()}
        if known.keys() == set(build.sources) and all(path.is_dir() for path in known.values()):
            return known
    found = {module: _module_folder(_go(), build.folder, module) for module in build.sources}
    scratch = folder / f".sources-{os.getpid()}"
    scratch.write_text(json.dumps({module: str(path) for module, path in found.items()}))
    scratch.rename(record)
    return found


def module_folder(build_name: str, module: str) -> Path:
    """The folder of any module in a go.mod's build list, for the manifests it carries (other projects' CRDs, say)."""
    return _module_folder(_go(), MODULES / build_name, module)


def _module_folder(go: Go, folder: Path, module: str) -> Path:
    go.run("mod", "download", module, cwd=folder)
    return Path(go.run("list", "-m", "-f", "{{.Dir}}", module, cwd=folder).strip())


@cache
def _go() -> Go:
    return find_go(cache_folder())


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time do this build."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
