"""Pods of several sorts; see :mod:`benchmarks.objects`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from benchmarks.objects import Json, managed, node_name, template_of, uid_of

_TIME: Final = "2026-11-03T06:12:45Z"
_DIGEST: Final = "9c2a4d1f0b7e3856" * 4
_ACCESS: Final = "kube-api-access-x7k2p"
#: Members of one gang, and namespaces over which pods are spread.
GANG: Final = 8
NAMESPACES: Final = 200


class Sort(NamedTuple):
    """A sort of pod.

    Attributes:
        name: what its names begin with.
        owner: kind of its controller.
        share: how many of a hundred pods are of the sort.
        gpus: GPUs that one asks for.
        gang: whether it is a member of a gang.
        containers: how many containers it has.
        ended: whether it has run to its end.
    """

    name: str
    owner: str
    share: int
    gpus: int = 0
    gang: bool = False
    containers: int = 1
    ended: bool = False


SORTS: Final = (
    Sort("train", "Job", 20, gpus=8, gang=True),
    Sort("serve", "ReplicaSet", 15, gpus=1, containers=2),
    Sort("web", "ReplicaSet", 40),
    Sort("agent", "DaemonSet", 15),
    Sort("done", "Job", 10, ended=True),
)


def _resources(gpus: int, at: int) -> Json:
    if gpus and at == 0:
        stated = {"cpu": str(10 * gpus), "memory": f"{96 * gpus}Gi", "nvidia.com/gpu": str(gpus)}
        return {"limits": stated, "requests": stated}
    return {"limits": {"memory": f"{256 << at}Mi"}, "requests": {"cpu": f"{100 << at}m", "memory": f"{128 << at}Mi"}}


def _container(sort: Sort, at: int) -> Json:
    env = [{"name": f"SETTING_{number}", "value": f"value-of-{number}"} for number in range(4)]
    env.append({"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}})
    probe = {"httpGet": {"path": "/healthz", "port": 8080 + at, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
    probe |= {"successThreshold": 1, "failureThreshold": 3}
    mounts = [{"name": "config", "mountPath": "/etc/config"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - a mount
    mounts.append({"name": _ACCESS, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"})
    return {
        "name": f"{sort.name}-{at}",
        "image": f"registry.example.com/team/{sort.name}-{at}:v1.4.2",
        "args": ["--config=/etc/config/config.yaml", "--log-level=info", f"--port={8080 + at}"],
        "ports": [{"name": f"http-{at}", "containerPort": 8080 + at, "protocol": "TCP"}],
        "env": env,
        "resources": _resources(sort.gpus, at),
        "volumeMounts": mounts,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
    }


def _spec(sort: Sort) -> Json:
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    if sort.gpus:
        tolerations.append({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
    return {
        "volumes": [
            {"name": "config", "configMap": {"name": f"{sort.name}-config", "defaultMode": 420}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
            {"name": _ACCESS, "projected": {"sources": [token, authority], "defaultMode": 420}},
        ],
        "containers": [_container(sort, at) for at in range(sort.containers)],
        "restartPolicy": "Never" if sort.owner == "Job" else "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": sort.name,
        "serviceAccount": sort.name,
        "nodeName": "%(node)b",
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_spread(sort)]}},
        "schedulerName": "default-scheduler",
        "tolerations": tolerations,
        "priorityClassName": "normal",
        "priority": 1000,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _spread(sort: Sort) -> Json:
    selector = {"matchLabels": {"app.kubernetes.io/name": sort.name}}
    return {"weight": 100, "podAffinityTerm": {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}}


def _status(sort: Sort, spec: Json) -> Json:
    running = {"running": {"startedAt": _TIME}}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": _TIME, "finishedAt": "%(time)b"}}
    statuses = [
        {
            "name": one["name"],
            "state": ended if sort.ended else running,
            "lastState": {},
            "ready": not sort.ended,
            "restartCount": 0,
            "image": one["image"],
            "imageID": f"{one['image'].partition(':')[0]}@sha256:{_DIGEST}",
            "containerID": f"containerd://{_DIGEST}",
            "started": not sort.ended,
            "allocatedResources": one["resources"]["requests"],
            "resources": one["resources"],
            "volumeMounts": [{**mount, "recursiveReadOnly": "Disabled"} for mount in one["volumeMounts"]],
            "user": {"linux": {"uid": 1000, "gid": 0, "supplementalGroups": [0, 1000]}},
        }
        for one in spec["containers"]
    ]
    names = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [
        {"type": name, "observedGeneration": 1, "status": "True", "lastProbeTime": None, "lastTransitionTime": "%(time)b"}
        for name in names
    ]
    return {
        "observedGeneration": 1,
        "phase": "Succeeded" if sort.ended else "%(phase)b",
        "conditions": conditions,
        "hostIP": "10.0.0.7",
        "hostIPs": [{"ip": "10.0.0.7"}],
        "podIP": "%(ip)b",
        "podIPs": [{"ip": "%(ip)b"}],
        "startTime": _TIME,
        "containerStatuses": statuses,
        "qosClass": "Burstable",
    }


def _pod(sort: Sort) -> Json:
    spec = _spec(sort)
    status = _status(sort, spec)
    labels = {"app.kubernetes.io/name": sort.name, "app.kubernetes.io/instance": "%(owner)b", "team": "%(namespace)b"}
    labels |= {"pod-template-hash": "7d4c9b6f5"} if sort.owner == "ReplicaSet" else {"controller-uid": "%(owneruid)b"}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": _DIGEST}
    if sort.gang:
        labels |= {"kueue.x-k8s.io/pod-group-name": "%(owner)b", "kueue.x-k8s.io/queue-name": "research"}
        labels["kueue.x-k8s.io/managed"] = "true"
        annotations["kueue.x-k8s.io/pod-group-total-count"] = str(GANG)
    group = "batch/v1" if sort.owner == "Job" else "apps/v1"
    owner = {"apiVersion": group, "kind": sort.owner, "name": "%(owner)b", "uid": "%(owneruid)b"}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    owned = {key: value for key, value in spec.items() if key not in {"nodeName", "tolerations", "priority"}}
    seen = {"conditions": status["conditions"], "containerStatuses": [], "hostIP": "", "phase": "", "podIP": "", "startTime": ""}
    metadata = {
        "name": "%(name)b",
        "generateName": "%(owner)b-",
        "namespace": "%(namespace)b",
        "uid": "%(uid)b",
        "resourceVersion": "%(version)b",
        "generation": 1,
        "creationTimestamp": _TIME,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
        "managedFields": [
            managed("kube-controller-manager", {"metadata": {"annotations": annotations, "labels": labels}, "spec": owned}),
            managed("kubelet", {"status": seen}, "status"),
        ],
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def _sort_table() -> tuple[int, ...]:
    """Which sort the pods of a run of a hundred are of, mixed but in whole gangs of their own numbering."""
    left: dict[int, float] = dict.fromkeys(range(len(SORTS)), 0.0)
    table: list[int] = []
    for _ in range(100):
        for at, sort in enumerate(SORTS):
            left[at] += sort.share / 100
        chosen = max(left, key=lambda at: (left[at], -at))
        left[chosen] -= 1
        table.append(chosen)
    return tuple(table)


class Pods:
    """The pods of a cluster, by index."""

    def __init__(self, count: int, nodes: int, seed: int) -> None:
        self.count = count
        self._nodes = nodes
        self._seed = seed
        self._templates = [template_of(_pod(sort)) for sort in SORTS]
        self._table = _sort_table()
        self._ranks = [self._table[:at].count(chosen) for at, chosen in enumerate(self._table)]

    def sort(self, at: int) -> Sort:
        """The sort of pod ``at``."""
        return SORTS[self._table[at % 100]]

    def _place(self, at: int) -> tuple[str, str, str]:
        """Namespace, controller and name of pod ``at``: eight pods in a row of a sort have one controller."""
        sort = self.sort(at)
        number = at // 100 * sort.share + self._ranks[at % 100]
        owner = number // GANG
        return f"team-{owner % NAMESPACES}", f"{sort.name}-{owner:05}", f"{sort.name}-{owner:05}-{number % GANG:03}x"

    def key(self, at: int) -> tuple[str, str]:
        """Namespace and name of pod ``at``."""
        namespace, _, name = self._place(at)
        return namespace, name

    def render(self, at: int, version: int, *, phase: str = "Running", time: str = _TIME) -> bytes:
        """Pod ``at`` at ``version``."""
        namespace, owner, name = self._place(at)
        values: dict[str, Any] = {
            "name": name,
            "owner": owner,
            "namespace": namespace,
            "uid": uid_of(self._seed, "pod", at),
            "owneruid": uid_of(self._seed, "owner", owner),
            "version": version,
            "phase": phase,
            "time": time,
            "ip": f"10.{128 + (at >> 16)}.{at >> 8 & 255}.{at & 255}",
            "node": node_name(at % self._nodes) if self._nodes else "gone",
        }
        return self._templates[self._table[at % 100]] % {key.encode(): str(value).encode() for key, value in values.items()}

    def all(self, version: int) -> Iterator[bytes]:
        """All of them."""
        return (self.render(at, version) for at in range(self.count))
