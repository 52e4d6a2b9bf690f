"""Random workloads, policies and facts: realistic ones, and ones that nobody would write."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.policy.profiles import NAMES
from gpugate.policies.rules.registry import RULES
from tests.shared import shapes
from tests.shared.maps import chosen, maps
from tests.shared.params import params_of

Object = dict[str, Any]

_DEVICES = [
    *("nvidia.com/gpu", LEGACY_GPU, "nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "amd.com/gpu", "aws.amazon.com/neuron"),
    *("nvidia.com/gpu.mig-1g.5gb", "nvidia.com/gpus", "rdma/hca"),
]
_COUNTS = st.sampled_from([0, 1, 2, 3, 8, "1", "4", "0", "8000m", "0.5", 16, None])
_MEMORY = st.sampled_from(["512Mi", "1Gi", "8Gi", "64G", "64Gi", "96Gi", "1500Gi", "4Ti", "1e9", "1073741824", 2**30, 0, None])
_CPU = st.sampled_from(["500m", "1", "7500m", 8, "64", "0", 1.5, None])
_SIZES = st.sampled_from(["1Gi", "8Gi", "64Gi", None])
_PATHS = st.sampled_from(["/dev/shm", "/dev/shm/", "//dev/shm", "/dev", "/", "/data", "/dev/shm/x", "dev/shm"])
_VOLUME_NAMES = st.sampled_from(["dshm", "data", "gpugate-shm", "gpugate-shm-2"])
_LABEL_VALUES = st.sampled_from(["a", "b", "true", ""])


def _sparse(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """A map with some of ``fields``."""
    return maps({}, fields)


def _or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


@cache
def _amounts() -> st.SearchStrategy[Object]:
    return st.builds(
        lambda devices, rest: {**devices, **rest},
        st.dictionaries(st.sampled_from(_DEVICES), _COUNTS, max_size=2),
        _sparse(memory=_MEMORY, cpu=_CPU),
    )


@cache
def _resources() -> st.SearchStrategy[Object]:
    return _sparse(
        limits=_or_null(_amounts()), requests=_or_null(_amounts()), claims=st.sampled_from([[{"name": "gpu"}], [], None])
    )


_TOLERATIONS = st.lists(
    maps(
        {},
        optional={
            "key": st.sampled_from(["nvidia.com/gpu", "sku", "amd.com/gpu", ""]),
            "operator": st.sampled_from(["Exists", "Equal", "In", None]),
            "value": st.sampled_from(["gpu", "present", None]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute", "", None]),
        },
    ),
    max_size=2,
)
_ENV = st.lists(
    maps(
        {
            "name": st.sampled_from(
                ["NCCL_DEBUG", "NCCL_TOPOLOGY_FILE", "NCCL_IB_DISABLE", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "A"]
            )
        },
        optional={
            "value": st.sampled_from(["all", "none", ""]),
            "valueFrom": st.just({"fieldRef": {"fieldPath": "metadata.name"}}),
        },
    ),
    max_size=2,
)
_VOLUMES = st.lists(
    st.builds(
        lambda name, source: {"name": name, **source},
        _VOLUME_NAMES,
        st.one_of(
            st.builds(
                lambda medium, size: {"emptyDir": {"medium": medium, "sizeLimit": size}}, st.sampled_from(["Memory", ""]), _SIZES
            ),
            st.sampled_from(
                [{"emptyDir": {}}, {"emptyDir": None}, {"hostPath": {"path": "/dev/shm"}}, {"configMap": {"name": "c"}}]
            ),
        ),
    ),
    max_size=3,
    unique_by=lambda volume: volume["name"],
)
_MOUNTS = st.lists(maps({"name": _VOLUME_NAMES, "mountPath": _PATHS}, optional={"readOnly": st.booleans()}), max_size=2)
_EXPRESSIONS = st.lists(
    maps(
        {
            "key": st.sampled_from(
                ["nvidia.com/gpu.product", "gpugate.io/numa-aligned", "nvidia.com/gpu.memory", "nvidia.com/gpu.mem", "zone"]
            ),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte"]),
        },
        optional={"values": st.lists(st.sampled_from(["H100", "T4", "1", "true"]), max_size=2)},
    ),
    max_size=2,
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = st.builds(
    lambda terms, together: {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}, **together},
    st.lists(_sparse(matchExpressions=_EXPRESSIONS, matchFields=st.none()), max_size=2),
    _sparse(
        podAffinity=maps(
            {
                _REQUIRED: st.lists(
                    maps(
                        {"topologyKey": st.sampled_from(["rack", "zone", "kubernetes.io/hostname"])},
                        optional={"labelSelector": st.sampled_from([None, {}, {"matchLabels": {"app": "a"}}])},
                    ),
                    max_size=2,
                )
            }
        )
    ),
)
_SPREAD = st.lists(
    maps(
        {"topologyKey": st.sampled_from(["topology.kubernetes.io/NUMANode", "kubernetes.io/hostname"]), "maxSkew": st.just(1)},
        optional={"labelSelector": st.sampled_from([None, {}, {"matchLabels": {"app": "a"}}])},
    ),
    max_size=2,
)


_PULLS = st.sampled_from(["Always", "IfNotPresent", None])
_IMAGES = ["example.com/image", "app", "app:1", "example.com/app:1@sha256:" + "0" * 64, "Bad/App"]


@cache
def _of_container() -> st.SearchStrategy[Object]:
    return _sparse(
        resources=_or_null(_resources()),
        env=_or_null(_ENV),
        envFrom=st.sampled_from([[{"configMapRef": {"name": "c"}}], None]),
        volumeMounts=_or_null(_MOUNTS),
        imagePullPolicy=_PULLS,
        ports=st.sampled_from([[{"containerPort": 80}], [{"containerPort": 80, "hostPort": 80}], None]),
        securityContext=st.sampled_from([{"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}, {}, None]),
        stdin=st.booleans(),
        tty=st.booleans(),
    )


@st.composite
def _containers(draw: st.DrawFn, prefix: str, least: int = 0) -> list[Object]:
    made = []
    for number in range(draw(st.integers(least, 2))):
        container: Object = {"name": f"{prefix}{number}", "image": draw(st.sampled_from(_IMAGES))}
        container |= draw(_of_container())
        if prefix == "init" and draw(st.booleans()):
            container["restartPolicy"] = "Always"
        made.append(container)
    return made


@cache
def _pod_specs() -> st.SearchStrategy[Object]:
    return maps(
        {"containers": _containers("main", 1)},
        optional={
            "initContainers": _or_null(_containers("init")),
            "ephemeralContainers": _or_null(_containers("debug")),
            "tolerations": _or_null(_TOLERATIONS),
            "volumes": _or_null(_VOLUMES),
            "nodeSelector": _or_null(
                st.dictionaries(st.sampled_from(["nvidia.com/gpu.product", "zone"]), st.sampled_from(["H100", "a"]), max_size=1)
            ),
            "affinity": _or_null(_AFFINITY),
            "topologySpreadConstraints": _or_null(_SPREAD),
            "resourceClaims": _or_null(st.just([{"name": "gpu", "resourceClaimName": "one-gpu"}])),
            "resources": _or_null(_sparse(limits=_sparse(memory=_MEMORY), requests=_sparse(cpu=_CPU))),
            "overhead": _or_null(_sparse(memory=st.just("1Gi"), cpu=st.just("250m"))),
            "runtimeClassName": st.sampled_from(["kata", "absent", None]),
            "hostIPC": st.booleans(),
            "hostNetwork": st.booleans(),
            "hostPID": st.booleans(),
            "nodeName": st.sampled_from(["gpu-1", "", None]),
            "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority", None]),
            "priority": st.sampled_from([0, 1000, None]),
            "schedulingGroup": st.sampled_from([{"podGroupName": "llm"}, {}, None]),
            "securityContext": st.sampled_from([{"runAsNonRoot": True}, {"runAsUser": 0}, {}, None]),
            "serviceAccountName": st.sampled_from(["default", "nvidia-dcgm-exporter", None]),
            "terminationGracePeriodSeconds": st.sampled_from([0, 30, 600, None]),
            "os": st.sampled_from([{"name": "linux"}, {"name": "windows"}, None]),
            "schedulerName": st.sampled_from(["default-scheduler", "own", None]),
            "activeDeadlineSeconds": st.sampled_from([60, -1, None]),
            "priorityClassName": st.sampled_from(["urgent", "", None]),
        },
    )


_LABELS = st.dictionaries(
    st.sampled_from(
        [
            *("app", "kueue.x-k8s.io/queue-name", "kustomize.toolkit.fluxcd.io/name", "kueue.x-k8s.io/podset"),
            *("kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/priority-class"),
        ]
    ),
    _LABEL_VALUES,
    max_size=2,
)
_ANNOTATIONS = _sparse(
    **{
        "gpugate.io/gang-size": st.sampled_from(["1", "2", "4", "four", "", None]),
        "gpugate.io/gang-name": st.sampled_from(["llm", ""]),
        "gpugate.io/exempt": st.sampled_from(["*", "numa,queue", "nothing"]),
        "gpugate.io/exempt-reason": st.sampled_from(["because", ""]),
        "gpugate.io/mutations": st.sampled_from(["", "[]", '[["add","/spec/x",1],["remove","/metadata/name"]]', "{"]),
        "gpugate.io/vram": st.sampled_from(["40Gi", "12G", "40GB", "0", None]),
        "gpugate.io/model-parameters": st.sampled_from(["7B", "1.5b", "70B", "8x7B", ""]),
        "gpugate.io/precision": st.sampled_from(["fp16", "int4", "fp64"]),
        "gpugate.io/tensor-parallel": st.sampled_from(["1", "2", "8", "0"]),
        "gpugate.io/gpu": st.sampled_from(["h100", "a100-80gb,t4", "NVIDIA-X", "x1", ",", None]),
        "gpugate.io/gpu-family": st.sampled_from(["hopper", "ada,ampere", "new"]),
        "gpugate.io/min-gpu-memory": st.sampled_from(["40Gi", "80G", "80"]),
        "gpugate.io/min-compute": st.sampled_from(["8.0", "8.6", "9.x"]),
        "gpugate.io/min-driver": st.sampled_from(["550", "470.06.1", "v1"]),
        "gpugate.io/spot": st.sampled_from(["required", "preferred", "never", "always"]),
        "gpugate.io/checkpoint": st.sampled_from(["s3://b/run", "/dev/shm", "/work/run", "runs", "none", "ftp:"]),
        "argocd.argoproj.io/tracking-id": st.just("app"),
        "kueue.x-k8s.io/job-min-parallelism": st.sampled_from(["1", "9", "x"]),
        "kueue.x-k8s.io/pod-group-total-count": st.sampled_from(["2", "4"]),
        "kueue.x-k8s.io/pod-group-fast-admission": st.just("true"),
        "kueue.x-k8s.io/podset-required-topology": st.sampled_from(["rack", "zone", ""]),
        "gpugate.io/gang-elastic": st.sampled_from(["true", "no"]),
        "gpugate.io/gang-min-size": st.sampled_from(["1", "3", "few"]),
        "scheduling.k8s.io/group-name": st.sampled_from(["a", "llm"]),
        "gpugate.io/workload-kind": st.sampled_from(["training", "inference", "interactive", "other"]),
        "owner": st.sampled_from(["vision", "Vision <v@example.com>", ""]),
    }
)
_OWNERS = st.lists(
    maps(
        {
            "kind": st.sampled_from(["ReplicaSet", "JobSet"]),
            "name": st.just("o"),
            "apiVersion": st.just("jobset.x-k8s.io/v1alpha2"),
        },
        optional={"controller": st.booleans()},
    ),
    max_size=1,
)


@cache
def _metadata() -> st.SearchStrategy[Object]:
    return maps(
        {"namespace": st.sampled_from(["default", "team-a", "team-b"])},
        optional={
            "name": st.just("w"),
            "generateName": st.just("w-"),
            "labels": _or_null(_LABELS),
            "annotations": _or_null(_ANNOTATIONS),
            "ownerReferences": _or_null(_OWNERS),
        },
    )


@cache
def _template_metadata() -> st.SearchStrategy[Any]:
    return _or_null(_sparse(labels=_or_null(_LABELS), annotations=_or_null(_ANNOTATIONS)))


_NUMBERS = st.sampled_from([0, 1, 2, 4, None])
_KINDS = {
    "Pod": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
}


@st.composite
def _gangs(draw: st.DrawFn, kind: str) -> Object:
    """A gang, or a pod that joins one, with little else about it that is odd."""
    amounts = {"nvidia.com/gpu": draw(st.sampled_from([1, 3, 4, 8])), "memory": draw(st.sampled_from(["64Gi", "600Gi"]))}
    spec: Object = {"containers": [{"name": "main0", "image": "example.com/image", "resources": {"limits": amounts}}]}
    spec |= draw(_sparse(affinity=_AFFINITY, priorityClassName=st.sampled_from(["high", "low"])))
    annotations = _sparse(
        **{
            "kueue.x-k8s.io/podset-required-topology": st.sampled_from(["rack", "zone"]),
            "kueue.x-k8s.io/pod-group-fast-admission": st.just("true"),
            "gpugate.io/gang-elastic": st.just("true"),
        }
    )
    meta: Object = {"labels": draw(st.one_of(_LABELS, st.just({}))), "annotations": draw(annotations)}
    root: Object = {"apiVersion": _KINDS[kind], "kind": kind}
    if kind == "Pod":
        meta["labels"]["kueue.x-k8s.io/pod-group-name"] = "llm"
        meta["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = draw(st.sampled_from(["2", "4"]))
        return _own(root | {"metadata": {"name": "w", "namespace": "default", **meta}, "spec": spec})
    size = draw(st.sampled_from([2, 4]))
    count = {"parallelism": size, "completions": size} if kind == "Job" else {"replicas": size}
    own: Object = {"name": "w", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "a"}}
    own["annotations"] = {"gpugate.io/gang-size": str(size)} if kind == "StatefulSet" else {}
    return _own(root | {"metadata": own, "spec": {"template": {"metadata": meta, "spec": spec}, **count}})


@st.composite
def _shaped(draw: st.DrawFn, kind: str) -> Object:
    """An object of one of the kinds of operators."""

    def template() -> Object:
        return {"spec": draw(_pod_specs())} | draw(_sparse(metadata=_template_metadata()))

    return shapes.shaped(kind, draw(_metadata()), shapes.Draws(template, lambda: draw(_NUMBERS), lambda: draw(st.booleans())))


@st.composite
def workloads(draw: st.DrawFn, kind: str | None = None) -> Object:
    """A workload of any kind, as people and controllers write them."""
    kind = kind or draw(st.sampled_from(draw(st.sampled_from([sorted(_KINDS), shapes.KINDS]))))
    if kind in shapes.KINDS:
        return _own(draw(_shaped(kind)))
    root: Object = {"apiVersion": _KINDS[kind], "kind": kind, "metadata": draw(_metadata())}
    if kind in {"Job", "Pod", "StatefulSet"} and draw(st.integers(0, 2)) == 0:
        return draw(_gangs(kind))
    if kind == "Pod":
        return _own(root | {"spec": draw(_pod_specs())})
    template = {"spec": draw(_pod_specs())} | draw(_sparse(metadata=_template_metadata()))
    spec: Object = {"template": template}
    if kind in {"Job", "CronJob"}:
        spec |= draw(_sparse(parallelism=_NUMBERS, completions=_NUMBERS, suspend=st.booleans()))
    else:
        spec |= draw(_sparse(replicas=_NUMBERS, selector=_or_null(st.just({"matchLabels": {"app": "a"}}))))
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec} | draw(_sparse(metadata=_template_metadata()))}
    return _own(root | {"spec": spec})


def name_of(root: Object) -> str:
    """The name by which :func:`workloads` makes objects like ``root``."""
    return "VolcanoJob" if root["apiVersion"].startswith("batch.volcano.sh/") else str(root["kind"])


def _own(root: Object) -> Object:
    """A copy that shares nothing with the values that the strategies choose from, since the engine edits in place."""
    copy: Object = clone(root)
    return copy


@st.composite
def policies(draw: st.DrawFn, mode: str | None = None) -> Object:
    """A random policy as its author writes it; all rules in ``mode`` where it is given."""
    rules: Object = {}
    modes = [None, None, "Enforce", "Mutate", "Warn", "DryRun", "Disabled"] if mode is None else [None]
    settings = st.tuples(st.sampled_from(modes), st.sampled_from([None, "Warn", "Refuse"]))
    for stated, rule in zip(chosen(draw, len(RULES)), RULES, strict=True):
        if stated:
            of_rule, on_conflict = draw(settings)
            more = {"mode": of_rule, "onGitConflict": on_conflict}
            # Random limits of the size are far below any object, and none would be judged.
            params: Object = {} if rule.id == "object-size" else draw(params_of(rule))
            rules[rule.id] = params | {key: value for key, value in more.items() if value}
    spec: Object = {"rules": rules, "mode": mode or draw(st.sampled_from(["Enforce", "Mutate", "Warn", "DryRun"]))}
    spec["profile"] = draw(st.sampled_from(NAMES))
    spec["exemptions"] = {"rules": draw(st.sampled_from([[], ["*"], ["numa"]]))}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "random"}, "spec": spec}


def bound_rules(mode: str | None = None) -> st.SearchStrategy[tuple[BoundRule, ...]]:
    """The rules that a random policy binds; all in ``mode`` where it is given."""
    return policies(mode).map(lambda policy: PolicySet([parse_policy(policy)]).bind({}, {}))


def node_like(name: str, labels: Object | None = None, **allocatable: str) -> Object:
    """A node with these labels and this to allocate."""
    amounts = {"cpu": "96", "memory": "1000Gi", **allocatable}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": amounts}}


@cache
def _nodes() -> st.SearchStrategy[list[Object]]:
    labels = _sparse(
        **{
            "nvidia.com/gpu.product": st.sampled_from(["H100", "T4"]),
            "gpugate.io/numa-aligned": st.just("true"),
            "topology.kubernetes.io/NUMANode": st.sampled_from(["0", "1"]),
            "nvidia.com/gpu.memory": st.sampled_from(["15360", "81920", "81920", "none"]),
            "nvidia.com/gpu.replicas": st.sampled_from(["0", "1", "4"]),
            "nvidia.com/gpu.sharing-strategy": st.sampled_from(["none", "time-slicing"]),
            "zone": st.sampled_from(["a", "b"]),
            "rack": st.sampled_from(["r1", "r2"]),
            "karpenter.sh/capacity-type": st.sampled_from(["spot", "on-demand"]),
        }
    )
    taints = st.lists(
        st.sampled_from(
            [
                {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                {"key": "sku", "value": "gpu", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "spot", "value": "true", "effect": "NoExecute"},
            ]
        ),
        max_size=2,
    )
    allocatable = maps(
        {"cpu": st.sampled_from(["4", "96"]), "memory": st.sampled_from(["1Gi", "1000Gi"])},
        optional={name: st.sampled_from(["1", "4", "8"]) for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu")},
    )
    node = st.builds(
        lambda labels, taints, allocatable: {
            "kind": "Node",
            "metadata": {"labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": allocatable},
        },
        labels,
        taints,
        allocatable,
    )
    return st.lists(node, max_size=3)


@cache
def _members() -> st.SearchStrategy[list[Object]]:
    """Pods that are members of groups, in any phase."""
    pod = st.builds(
        lambda labels, annotations, spec, phase, namespace: {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "labels": labels or {}, "annotations": annotations or {}},
            "spec": spec,
            "status": {"phase": phase},
        },
        _LABELS,
        _ANNOTATIONS,
        _pod_specs(),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        st.sampled_from(["default", "team-a"]),
    )
    in_groups = st.builds(
        lambda size, phase: {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "default",
                "labels": {"kueue.x-k8s.io/pod-group-name": "llm"},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": size},
            },
            "spec": {"containers": [{"name": "main0", "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "64Gi"}}}]},
            "status": {"phase": phase},
        },
        st.sampled_from(["2", "4"]),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    )
    return st.lists(st.one_of(pod, in_groups), max_size=4)


@cache
def _pod_groups() -> st.SearchStrategy[list[Object]]:
    made = st.builds(
        lambda version, name, minimum: {
            "apiVersion": version,
            "kind": "PodGroup",
            "metadata": {"namespace": "default", "name": name},
            "spec": {"minMember": minimum},
        },
        st.sampled_from(["scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"]),
        st.sampled_from(["a", "llm"]),
        st.sampled_from([1, 3, 8, None]),
    )
    return st.lists(made, max_size=2, unique_by=lambda one: (one["apiVersion"], one["metadata"]["name"]))


def _queues_with_levels() -> list[Object]:
    """What Kueue knows of the queues ``a`` and ``q``: a flavor with racks."""
    flavor = {"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}
    groups = [{"flavors": [flavor], "coveredResources": ["nvidia.com/gpu"]}]
    made: list[tuple[str, Object, Object]] = [
        ("LocalQueue", {"namespace": "default", "name": "a"}, {"clusterQueue": "c"}),
        ("ClusterQueue", {"name": "c"}, {"resourceGroups": groups}),
        ("ResourceFlavor", {"name": "f"}, {"topologyName": "t"}),
        ("Topology", {"name": "t"}, {"levels": [{"nodeLabel": "rack"}]}),
    ]
    return [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec} for kind, meta, spec in made]


_SPACES = ("default", "team-a", "team-b")
_NOMINAL = st.sampled_from(["0", "1", "8", "100Gi"])


@cache
def queue_objects() -> st.SearchStrategy[list[Object]]:
    """Queues that labels of the workloads name, with quota of their own and in a cohort."""
    quota = maps({"nominalQuota": _NOMINAL}, optional={"borrowingLimit": _NOMINAL, "lendingLimit": _NOMINAL})
    covered = ["nvidia.com/gpu", "cpu", "memory", "pods"]

    def groups(names: list[str], quotas: list[Object]) -> list[Object]:
        resources = [{"name": name, **quotas[at % len(quotas)]} for at, name in enumerate(names)]
        return [{"coveredResources": names, "flavors": [{"name": flavor, "resources": resources} for flavor in ("f", "g")]}]

    resource_groups = st.builds(
        groups, st.lists(st.sampled_from(covered), min_size=1, max_size=4, unique=True), st.lists(quota, min_size=1, max_size=3)
    )
    spec = maps(
        {"resourceGroups": resource_groups},
        optional={
            "cohortName": st.sampled_from(["ml", "up"]),
            "namespaceSelector": st.sampled_from([{}, {"matchLabels": {"a": "b"}}]),
            "stopPolicy": st.sampled_from(["None", "Hold"]),
        },
    )
    cohort = _sparse(parentName=st.sampled_from(["up", "ml"]), resourceGroups=resource_groups)
    flavor = _sparse(
        nodeLabels=st.sampled_from([{"zone": "a"}, {"nvidia.com/gpu.product": "H100"}]),
        nodeTaints=st.just([{"key": "sku", "value": "gpu", "effect": "NoSchedule"}]),
    )
    reserved = [{"name": "f", "resources": [{"name": "nvidia.com/gpu", "total": "4"}]}]

    def objects(queues: list[Object], cohorts: dict[str, Object], flavors: dict[str, Object]) -> list[Object]:
        made: list[Object] = [
            {"kind": "LocalQueue", "metadata": {"namespace": space, "name": name}, "spec": {"clusterQueue": queue}}
            for space in _SPACES
            for name, queue in (("a", "q0"), ("b", "q1"), ("true", "q2"))
        ]
        for number, one in enumerate(queues):
            status = {"flavorsReservation": reserved, "pendingWorkloads": number}
            made.append({"kind": "ClusterQueue", "metadata": {"name": f"q{number}"}, "spec": one, "status": status})
        made += [{"kind": "Cohort", "metadata": {"name": name}, "spec": one} for name, one in cohorts.items()]
        return made + [{"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": one} for name, one in flavors.items()]

    names = st.sampled_from(["ml", "up"])
    return st.builds(
        objects,
        st.lists(spec, max_size=3),
        st.dictionaries(names, cohort, max_size=2),
        st.dictionaries(st.sampled_from(["f", "g"]), flavor, max_size=2),
    )


@cache
def bound_objects() -> st.SearchStrategy[list[Object]]:
    """What the namespaces hold their pods to."""
    amounts = _sparse(memory=st.sampled_from(["1Gi", "64Gi"]), cpu=st.sampled_from(["1", "8"]))
    limit = maps(
        {"type": st.sampled_from(["Container", "Pod"])},
        optional={
            **dict.fromkeys(("max", "min", "default", "defaultRequest"), amounts),
            "maxLimitRequestRatio": _sparse(memory=st.sampled_from(["1", "1.5", "x"])),
        },
    )
    hard = _sparse(
        **{
            "requests.nvidia.com/gpu": st.sampled_from(["0", "4"]),
            "limits.memory": st.just("100Gi"),
            "cpu": st.just("10"),
            "count/jobs.batch": st.sampled_from(["0", "2"]),
        }
    )
    scopes = st.sampled_from([[], ["Terminating"], ["NotBestEffort"], ["PriorityClass"], ["CrossNamespacePodAffinity"], ["Other"]])
    used = {"requests.nvidia.com/gpu": "3", "count/jobs.batch": "2"}

    def objects(limits: list[Object], hard: Object, scopes: list[str]) -> list[Object]:
        made: list[Object] = [{"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": {"podFixed": {"memory": "2Gi"}}}]
        for space in _SPACES:
            place, spec = {"namespace": space, "name": "bounds"}, {"hard": hard, "scopes": scopes}
            made.append({"kind": "LimitRange", "metadata": place, "spec": {"limits": limits}})
            made.append({"kind": "ResourceQuota", "metadata": place, "spec": spec, "status": {"used": used}})
        return made

    return st.builds(objects, st.lists(limit, max_size=2), hard, scopes)


KUEUE_CONFIGURATION: Object = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod", "deployment"]},
    "resources": {
        "excludeResourcePrefixes": ["rdma/"],
        "transformations": [{"input": "nvidia.com/mig-1g.5gb", "strategy": "Replace", "outputs": {"memory": "5Gi", "cpu": "100m"}}],
    },
}
_WATCHED = [
    *("nodes", "localqueues", "clusterqueues", "cohorts", "limitranges", "resourcequotas", "configurations"),
    *("pods", "topologies", "runtimeclasses", "noderesourcetopologies", "podgroups.scheduling.x-k8s.io"),
]
_NODE_NAMES = st.sampled_from(["n0", "n1", "n2"])


@cache
def _running() -> st.SearchStrategy[list[Object]]:
    """Pods that hold something of nodes, known or not."""
    amounts = maps(
        {}, optional={"memory": st.sampled_from(["1Gi", "900Gi", "4Ti"]), "nvidia.com/gpu": st.just("1"), "cpu": st.just("3")}
    )
    pods = st.lists(st.tuples(_NODE_NAMES, amounts), max_size=3)
    return pods.map(
        lambda found: [
            {
                "kind": "Pod",
                "metadata": {"name": f"running-{at}", "namespace": "team-b", "uid": f"u{at}"},
                "spec": {"nodeName": node, "containers": [{"name": "m", "resources": {"limits": limits}}]},
                "status": {"phase": "Running"},
            }
            for at, (node, limits) in enumerate(found)
        ]
    )


@cache
def _fillers() -> st.SearchStrategy[list[Object]]:
    """What the API puts into pods when they are made."""
    runtime = {
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "overhead": {"podFixed": {"memory": "300Mi", "cpu": "250m"}},
        "scheduling": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
    }
    limits = {
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "team-a"},
        "spec": {"limits": [{"type": "Container", "default": {"memory": "2Gi"}, "defaultRequest": {"cpu": "1"}}]},
    }
    return st.sampled_from([[], [runtime], [limits], [runtime, limits]])


@cache
def _topologies() -> st.SearchStrategy[list[Object]]:
    """What agents say of the NUMA zones of nodes."""
    zones = [
        {
            "name": f"node-{at}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": amount, "allocatable": amount}
                for name, amount in (("nvidia.com/gpu", "2"), ("cpu", "48"))
            ],
        }
        for at in range(2)
    ]
    attributes = maps(
        {"policy": st.sampled_from(["single-numa-node", "restricted", "none"]), "scope": st.sampled_from(["container", "pod"])}
    )
    return st.lists(st.tuples(_NODE_NAMES, attributes), max_size=2, unique_by=lambda one: one[0]).map(
        lambda found: [
            {
                "kind": "NodeResourceTopology",
                "metadata": {"name": node},
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": said["policy"]},
                    {"name": "topologyManagerScope", "value": said["scope"]},
                ],
                "zones": zones,
            }
            for node, said in found
        ]
    )


@st.composite
def cluster_objects(draw: st.DrawFn) -> tuple[list[Object], dict[str, SyncState]] | None:
    """The objects of a random cluster, and the kinds that are absent or still on their way; None for no cluster."""
    if draw(st.integers(0, 3)) == 0:
        return None
    objects = draw(_nodes()) + [
        node_like("", {"rack": rack, "karpenter.sh/capacity-type": capacity}, **{"nvidia.com/gpu": "8"})
        for rack, capacity in draw(st.sampled_from([[], [("r1", "spot"), ("r2", "on-demand")], [("r1", "spot"), ("r1", "spot")]]))
    ]
    for number, node in enumerate(objects):
        node["metadata"]["name"] = f"n{number}"
    for namespace, name in draw(st.sampled_from([[], [("team-a", "q")], [("team-a", "q"), ("team-a", "r")]])):
        objects.append({"kind": "LocalQueue", "metadata": {"namespace": namespace, "name": name}})
    objects.append(
        {
            "kind": "Namespace",
            "metadata": {
                "name": "team-b",
                "labels": draw(st.sampled_from([{}, {"gpugate.io/default-queue": "q"}, {"team": "vision"}])),
                "annotations": draw(st.sampled_from([{}, {"gpugate.io/highest-priority": "10"}])),
            },
        }
    )
    members = draw(_members())
    for number, member in enumerate(members):
        member["metadata"]["name"] = f"m{number}"
    objects.extend([*members, *draw(_pod_groups()), *(_queues_with_levels() if draw(st.booleans()) else [])])
    claim = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    objects.extend(
        {"kind": "ResourceClaim", "metadata": {"name": "one-gpu", "namespace": space}, "spec": claim}
        for space in ("default", "team-a")
    )
    for more in (queue_objects(), bound_objects(), st.just([KUEUE_CONFIGURATION])):
        if draw(st.booleans()):
            objects.extend(draw(more))
    for kinds in (_running(), _fillers(), _topologies()):
        objects.extend(draw(kinds))
    known = draw(st.dictionaries(st.sampled_from(_WATCHED), st.sampled_from([SyncState.PENDING, SyncState.ABSENT]), max_size=2))
    return objects, known


def clusters() -> st.SearchStrategy[ClusterSnapshot]:
    """A random cluster: known, unknown, or still on its way."""
    return cluster_objects().map(lambda found: EMPTY_SNAPSHOT if found is None else snapshot_from_objects(*found))


#: Any JSON value, as the wire can bring it, made of words that gpugate looks for.
_WORDS = [
    *("metadata", "spec", "template", "jobTemplate", "containers", "initContainers", "ephemeralContainers", "resources", "limits"),
    *("requests", "claims", "labels", "annotations", "name", "volumes", "emptyDir", "medium", "sizeLimit", "tolerations", "key"),
    *("operator", "effect", "value", "env", "volumeMounts", "mountPath", "nodeSelector", "affinity", "nodeAffinity", _REQUIRED),
    *(
        "nodeSelectorTerms",
        "matchExpressions",
        "topologySpreadConstraints",
        "labelSelector",
        "matchLabels",
        "topologyKey",
        "selector",
    ),
    *("ownerReferences", "controller", "managedFields", "manager", "resourceClaims", "overhead", "os", "parallelism", "replicas"),
    *("completions", "status", "active", "nvidia.com/gpu", "memory", "cpu", "schedulerName", "restartPolicy", "hostIPC"),
    *("schedulingGroup", "podGroupName", "podAffinity", "priorityClassName", "kueue.x-k8s.io/pod-group-name"),
    *("gpugate.io/gang-min-size", "kueue.x-k8s.io/podset-required-topology", "resourceVersion", "uid"),
    *("securityContext", "privileged", "capabilities", "add", "seccompProfile", "type", "runAsUser", "runAsNonRoot", "hostPort"),
    *("hostPath", "path", "valueFrom", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "cdi.k8s.io/mine", "serviceAccountName"),
    *("gpugate.io/gang-size", "gpugate.io/exempt", "gpugate.io/exempt-reason", "gpugate.io/mutations", "kueue.x-k8s.io/queue-name"),
    *("gpugate.io/gpu", "gpugate.io/min-compute", "values", "gpugate.io/spot", "gpugate.io/checkpoint", "backoffLimit"),
]
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["1Gi", "1", "-1", "1e99", "Always", "Memory", "Exists", "In", "/dev/shm", "windows", "gpu"]),
)
any_json = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4)),
    max_leaves=12,
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        found.extend(_places(child, (*path, key)))
    return found


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[Object]) -> Object:
    """One of ``whole`` in which a few places hold any JSON whatever."""
    root = clone(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        places = [path for path in _places(root) if path[0] not in {"kind", "apiVersion"}]
        *way, last = draw(st.sampled_from(places))
        parent: Any = root
        for part in way:
            parent = parent[part]
        parent[last] = clone(draw(any_json))
        if isinstance(parent, dict) and draw(st.booleans()):
            parent[draw(st.sampled_from(_WORDS))] = clone(draw(any_json))
    return root


@st.composite
def nonsense(draw: st.DrawFn) -> Object:
    """An object of a known kind with any JSON in it."""
    kind = draw(st.sampled_from(sorted(_KINDS)))
    content = draw(st.dictionaries(st.sampled_from(_WORDS), any_json, max_size=4))
    return _own(content | {"apiVersion": _KINDS[kind], "kind": kind, "spec": draw(any_json)})
