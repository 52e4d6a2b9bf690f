"""Custom resource definitions: installed quickly, and waited for."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any

from tests.e2e.controlplane.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.e2e.controlplane.access import ClusterAccess
    from tests.e2e.controlplane.programs import Programs

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# The kinds of jobs that Kueue knows beside Kubernetes' own: the module, the folder in it, the files there.
# These are the CRDs only; the controllers behind them do not run. Each costs the apiserver about half a second.
JOB_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "jobset": ("sigs.k8s.io/jobset", "config/components/crd/bases", ("jobset.x-k8s.io_jobsets",)),
    "leaderworkerset": ("sigs.k8s.io/lws", "config/crd/bases", ("leaderworkerset.x-k8s.io_leaderworkersets",)),
    **{
        kind: ("github.com/kubeflow/training-operator", "manifests/base/crds", (f"kubeflow.org_{kind}s",))
        for kind in ("jaxjob", "paddlejob", "pytorchjob", "tfjob", "xgboostjob")
    },
    "trainjob": (
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        tuple(f"trainer.kubeflow.org_{kind}s" for kind in ("clustertrainingruntime", "trainingruntime", "trainjob")),
    ),
    "mpijob": ("github.com/kubeflow/mpi-operator", "manifests/base", ("kubeflow.org_mpijobs",)),
    **{
        kind: ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases", (f"ray.io_{kind}s",))
        for kind in ("raycluster", "rayjob", "rayservice")
    },
    "appwrapper": ("github.com/project-codeflare/appwrapper", "config/crd/bases", ("workload.codeflare.dev_appwrappers",)),
    "vcjob": ("volcano.sh/volcano", "config/crd/volcano/bases", ("batch.volcano.sh_jobs",)),
}
#: The module that Kueue does not require, and so has a go.mod of its own.
VOLCANO = "volcano.sh/volcano"
JOB_KIND_MODULES = tuple(sorted({module for module, _, _ in JOB_KINDS.values()} - {VOLCANO}))

# The kinds of reports: the module, the folder in it, the file there.
REPORT_KINDS: Mapping[str, tuple[str, str, str]] = {
    "policyreports.wgpolicyk8s.io": ("github.com/kyverno/kyverno", "config/crds/policyreport", "wgpolicyk8s.io_policyreports"),
    "reports.openreports.io": ("github.com/openreports/reports-api", "config/crd", "openreports.io_reports"),
}
REPORT_MODULES = tuple(sorted({module for module, _, _ in REPORT_KINDS.values()}))

# Kinds of the pieces in `manifests/cluster` that neither Kubernetes nor Kueue brings: the module, the folder in it, the file there.
_PROMETHEUS = ("github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd")
CLUSTER_KINDS: Mapping[str, tuple[str, str, str]] = {
    "servicemonitors.monitoring.coreos.com": (*_PROMETHEUS, "monitoring.coreos.com_servicemonitors"),
    "prometheusrules.monitoring.coreos.com": (*_PROMETHEUS, "monitoring.coreos.com_prometheusrules"),
    "nodepools.karpenter.sh": ("sigs.k8s.io/karpenter", "pkg/apis/crds", "karpenter.sh_nodepools"),
}
CLUSTER_MODULES = tuple(sorted({module for module, _, _ in CLUSTER_KINDS.values()}))


def install_crds(cluster: ClusterAccess, crds: Iterable[bytes | Mapping[str, Any]]) -> None:
    """Create CRDs (YAML text or objects) and wait until they are served.

    Raw requests, because kubectl would fetch the whole OpenAPI document, which is rebuilt after every new CRD.
    """
    names = set()
    for crd in crds:
        content_type = "application/yaml" if isinstance(crd, bytes) else "application/json"
        answer = cluster.request("POST", _PATH, crd, content_type=content_type)
        if answer.status != http.HTTPStatus.CREATED:
            raise AssertionError(f"a CRD was not created: {answer.status} {answer.body}")
        names.add(answer.body["metadata"]["name"])

    def established() -> bool:
        return names <= {crd["metadata"]["name"] for crd in cluster.request("GET", _PATH).body["items"] if _served(crd)}

    wait_until(established, 60, f"CRDs {', '.join(sorted(names))} to be established")


def install_job_kinds(cluster: ClusterAccess, programs: Programs, kinds: Iterable[str]) -> None:
    """Install the CRDs of some of `JOB_KINDS`, from the very modules that Kueue is built with."""
    wanted = [JOB_KINDS[kind] for kind in kinds]
    files = [programs.sources[module] / folder / f"{name}.yaml" for module, folder, names in wanted for name in names]
    install_crds(cluster, [file.read_bytes() for file in files])


def install_report_kind(cluster: ClusterAccess, programs: Programs, name: str) -> None:
    """Install the CRD of one of `REPORT_KINDS`."""
    module, folder, file = REPORT_KINDS[name]
    install_crds(cluster, [(programs.sources[module] / folder / f"{file}.yaml").read_bytes()])


def install_cluster_kind(cluster: ClusterAccess, programs: Programs, name: str) -> None:
    """Install the CRD of one of `CLUSTER_KINDS`."""
    module, folder, file = CLUSTER_KINDS[name]
    install_crds(cluster, [(programs.sources[module] / folder / f"{file}.yaml").read_bytes()])


def remove_crd(cluster: ClusterAccess, name: str) -> None:
    """Take a CRD away, with every object of its kind, and wait until it has gone."""
    cluster.request("DELETE", f"{_PATH}/{name}")
    wait_until(lambda: cluster.request("GET", f"{_PATH}/{name}").status == http.HTTPStatus.NOT_FOUND, 60, f"the CRD {name} to go")


def _served(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
