"""One cluster: every program of a control plane, started together and stopped together."""

from __future__ import annotations

import base64
import json
import shutil
import urllib.request
from typing import TYPE_CHECKING

from tests.e2e.controlplane import components
from tests.e2e.controlplane.access import ClusterAccess
from tests.e2e.controlplane.authority import Authority
from tests.e2e.controlplane.components import HOST, answers_ok
from tests.e2e.controlplane.crds import install_job_kinds
from tests.e2e.controlplane.kueue import start_kueue
from tests.e2e.controlplane.kwok import start_kwok
from tests.e2e.controlplane.ports import free_port
from tests.e2e.controlplane.process import stop_all
from tests.e2e.controlplane.programs import find_programs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from tests.e2e.controlplane.process import ManagedProcess
    from tests.e2e.controlplane.programs import Programs

_START_TIMEOUT = 90.0


class ControlPlane(ClusterAccess):
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK and, if wanted, Kueue."""

    processes: dict[str, ManagedProcess]
    """What runs, by name, in the order it was started."""
    _etcd: str
    """Where etcd answers."""
    _ready: dict[str, str]
    """The URLs that say when those that were started last are ready."""

    @classmethod
    def start(
        cls,
        run_dir: Path,
        *,
        kueue: bool = False,
        job_kinds: Sequence[str] = (),
        apiserver_args: Sequence[str] = (),
        feature_gates: Sequence[str] = (),
    ) -> ControlPlane:
        """Build what is not built yet, start everything and wait until it is ready.

        `run_dir` is a folder of its own for this cluster: certificates, kubeconfigs, data and logs go there.
        `job_kinds` names the CRDs to install from `crds.JOB_KINDS`. `apiserver_args` are added to kube-apiserver's.
        `feature_gates` are switched on in all of Kubernetes' own programs.
        """
        programs = find_programs(kueue=kueue or bool(job_kinds))
        run_dir = run_dir.absolute()
        run_dir.mkdir(parents=True, exist_ok=True)
        port = free_port()
        cluster = cls(f"https://{HOST}:{port}", Authority(run_dir / "certificates"), programs["kubectl"], run_dir)
        cluster.processes, cluster._ready = {}, {}
        try:
            gates = [f"--feature-gates={','.join(f'{gate}=true' for gate in feature_gates)}"] if feature_gates else []
            cluster._start_kubernetes(programs, port, [*apiserver_args, *gates], gates)
            cluster._start_others(programs, kueue=kueue, job_kinds=job_kinds)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def _start_kubernetes(self, programs: Programs, port: int, apiserver_args: Sequence[str], gates: Sequence[str]) -> None:
        run_dir, authority = self.run_dir, self.authority
        self.processes["etcd"], etcd = components.start_etcd(programs, run_dir)
        self._etcd = etcd
        self._wait_ready("etcd", f"{etcd}/readyz")
        self.processes["kube-apiserver"] = components.start_apiserver(programs, run_dir, authority, etcd, port, apiserver_args)
        self._wait_ready("kube-apiserver", f"{self.server}/readyz")
        for name, start in (
            ("kube-controller-manager", components.start_controller_manager),
            ("kube-scheduler", components.start_scheduler),
        ):
            kubeconfig = self.kubeconfig_for(f"system:{name}")
            self.processes[name], self._ready[name] = start(programs, run_dir, authority, kubeconfig, gates)

    def _start_others(self, programs: Programs, *, kueue: bool, job_kinds: Sequence[str]) -> None:
        self.processes["kwok"], self._ready["kwok"] = start_kwok(programs, self, self.run_dir)
        install_job_kinds(self, programs, job_kinds)
        if kueue:
            self.processes["kueue"], self._ready["kueue"] = start_kueue(programs, self, self.run_dir)
        # Started first, waited for last: they get ready side by side.
        for name, url in self._ready.items():
            self._wait_ready(name, url)

    def _wait_ready(self, name: str, url: str) -> None:
        self.processes[name].wait_ready(lambda: answers_ok(url, self.authority.ca_file), _START_TIMEOUT)

    @property
    def audit_log(self) -> Path:
        """The apiserver's audit log, one JSON event per line: changes only, with bodies and webhooks' patches."""
        return components.audit_log(self.run_dir)

    def stored(self, prefix: str) -> dict[str, int]:
        """The keys in etcd that begin with ``prefix`` (``/registry/pods/``), each with the bytes of its key and value."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        asked = {name: base64.b64encode(text.encode()).decode() for name, text in (("key", prefix), ("range_end", end))}
        request = urllib.request.Request(f"{self._etcd}/v3/kv/range", json.dumps(asked).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as response:
            found = json.load(response).get("kvs") or []
        pairs = [(base64.b64decode(one["key"]), base64.b64decode(one["value"])) for one in found]
        return {key.decode(): len(key) + len(value) for key, value in pairs}

    def stop(self) -> None:
        """Stop everything; logs stay, etcd's data does not. Idempotent."""
        stop_all(self.processes.values())
        shutil.rmtree(self.run_dir / "etcd", ignore_errors=True)

    def __enter__(self) -> Self:
        """Nothing more to do: it runs already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop everything."""
        self.stop()
