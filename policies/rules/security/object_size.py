"""Objects with many times more entries than any real workload are not judged.

## What it does

Counts containers, volumes, tolerations and other entries of an object before any other rule runs. If a count is over its limit,
gpugate neither edits the object nor checks it further, so that one object cannot keep the reviews of others waiting. In Enforce,
the object is refused. In Warn and DryRun, and where no policy binds this rule, it passes without edits and checks, and the finding
says so.

An UPDATE is refused only if it goes over a limit, or further over one. The limits hold in every mode, and for objects that are
exempt from this rule: these are never refused. Where the rule is Disabled or not bound, the default limits hold. To have larger
objects judged, raise the limit.

No object is refused for what gpugate itself adds. The validating webhook sees an object after its edits, so it allows more
volumes, mounts, environment variables, names of resources, tolerations and scheduling terms: as many as the rules may add.

## Why

The apiserver stores objects of up to 1.5 MB and waits for the webhook. A pod of 55 KB can list 600 init containers.

No real workload is near these limits. In 5,820 pod templates of Kubernetes, Kueue, JobSet, Kubeflow, KubeRay, the NVIDIA GPU
Operator and the AI-on-GKE examples, the largest pod has 9 containers, 4 init containers, 20 volumes, 34 mounts, 39 environment
variables, 4 tolerations and 6 affinity terms. The largest object has 4 pod templates.

## Practice

- None of the guides speaks of the size of an object: the rule is for the webhook's own availability.

## Example

A pod with 600 init containers: "the object has 600 init containers, more than the limit of 512, so gpugate does not check it".
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import gt
from typing import Annotated, Final, cast

from pydantic import Field
from pydantic.alias_generators import to_camel, to_pascal

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import MOST
from gpugate.policies.kube.fields import Object, Path
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS
from gpugate.policies.workloads.workload import Workload

_Limit = Annotated[int, Field(ge=1, le=100_000)]


class ObjectSizeParams(Params):
    """Parameters of `object-size`: the most entries of one object, all its pod templates together."""

    pod_sets: _Limit = 256
    """Pod templates."""
    containers: _Limit = 1024
    """Containers, without init containers."""
    init_containers: _Limit = 512
    """Init containers, sidecars among them."""
    accelerator_containers: _Limit = 256
    """Containers that request an accelerator."""
    images: _Limit = 512
    """Different images."""
    volumes: _Limit = 2048
    """Volumes."""
    volume_mounts: _Limit = 8192
    """Volume mounts."""
    env: _Limit = 16_384
    """Environment variables, and sources of them."""
    resource_names: _Limit = 4096
    """Names in requests, limits and overhead."""
    resource_claims: _Limit = 512
    """Resource claims."""
    tolerations: _Limit = 2048
    """Tolerations."""
    node_selector: _Limit = 1024
    """Labels in node selectors."""
    affinity_terms: _Limit = 1024
    """Terms of node and pod affinity."""
    affinity_values: _Limit = 16_384
    """Expressions and their values in affinity terms."""
    topology_spread_constraints: _Limit = 512
    """Topology spread constraints."""

    @cached_property
    def limits(self) -> list[int]:
        """The limits on lists, in the order of ``_LISTS``."""
        return [getattr(self, field) for field in _LISTS]


#: Field of the parameters: name in a sentence, and the field of the pod spec that a finding names.
_LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "containers": ("containers", "containers"),
    "init_containers": ("init containers", "initContainers"),
    "accelerator_containers": ("containers that request an accelerator", "containers"),
    "images": ("different images", "containers"),
    "volumes": ("volumes", "volumes"),
    "volume_mounts": ("volume mounts", "containers"),
    "env": ("environment variables", "containers"),
    "resource_names": ("names in requests, limits and overhead", "containers"),
    "resource_claims": ("resource claims", "resourceClaims"),
    "tolerations": ("tolerations", "tolerations"),
    "node_selector": ("labels in node selectors", "nodeSelector"),
    "affinity_terms": ("affinity terms", "affinity"),
    "affinity_values": ("expressions and values in affinity terms", "affinity"),
    "topology_spread_constraints": ("topology spread constraints", "topologySpreadConstraints"),
}
#: Entries that the rules add at most to each template, and to each container that requests an accelerator. The lists of
#: parameters have at most :data:`MOST` entries, an affinity at most as many terms by `placement`.
_ADDED: Final[Mapping[str, Mapping[str, int]]] = {
    "volumes": {"pod_sets": 1},
    "volume_mounts": {"containers": 1, "init_containers": 1},
    "env": {"accelerator_containers": MOST},
    "resource_names": {"containers": 8, "init_containers": 8},
    "tolerations": {"pod_sets": 2 * MOST},
    "affinity_terms": {"pod_sets": 2 * MOST},
    "affinity_values": {"pod_sets": 16 * MOST},
    "topology_spread_constraints": {"pod_sets": 16},
}
#: What the rules may add together to an object with low limits.
_LEAST_ADDED: Final = 4096
_POD_SETS: Final = "pod templates"
#: Position of ``images`` in a count.
_IMAGES: Final = list(_LISTS).index("images")


def check(workload: Workload, params: ObjectSizeParams, _snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report every limit that the object is over."""
    pod_sets = workload.pod_sets
    if len(pod_sets) > params.pod_sets:
        yield _over("pod_sets", _POD_SETS, len(pod_sets), params.pod_sets, pod_sets[0].path)
    images: set[object] = set()
    counts = [_counts(pods.spec, images) for pods in pod_sets]
    for at, (field, (noun, name)) in enumerate(_LISTS.items()):
        of_pod_sets = [count[at] for count in counts]
        number = len(images) if at == _IMAGES else sum(of_pod_sets)
        if number > params.limits[at]:
            largest = pod_sets[of_pod_sets.index(max(of_pod_sets))]
            yield _over(field, noun, number, params.limits[at], largest.field(name))


def count(workload: Workload) -> dict[str, int]:
    """Return the number of entries of the object for each limit, by the name of the parameter."""
    images: set[object] = set()
    counts = [_counts(pods.spec, images) for pods in workload.pod_sets]
    sums = {field: sum(numbers) for field, *numbers in zip(_LISTS, *counts, strict=True)}
    return {"pod_sets": len(counts), **sums, "images": len(images)}


def is_over(workload: Workload, params: Params, *, edited: bool) -> bool:
    """Return whether the object is over a limit; ``edited``: it may have what the rules added."""
    limits = cast("ObjectSizeParams", params)
    # The usual case, without a finding to build. The images of all containers are no fewer than the different ones.
    if len(workload.pod_sets) == 1 and not any(map(gt, _counts(workload.pod_sets[0].spec, set()), limits.limits)):
        return False
    over = list(check(workload, limits, EMPTY_SNAPSHOT))
    return bool(_without_edits(over, workload, limits) if over and edited else over)


def over_limits(workload: Workload, params: Params, *, edited: bool) -> list[Finding]:
    """Return a finding for every limit that the object is over; ``edited``: it may have what the rules added."""
    limits = cast("ObjectSizeParams", params)
    findings = RULE.findings(workload, limits, EMPTY_SNAPSHOT)
    return _without_edits(findings, workload, limits) if edited else findings


def _without_edits(findings: Iterable[Finding], workload: Workload, params: ObjectSizeParams) -> list[Finding]:
    """Return ``findings`` without those of counts that the edits of rules explain."""
    counts, limits = count(workload), params.model_dump()
    return [
        finding
        for finding in findings
        for field in (_FIELDS[finding.reason],)
        if finding.measure > limits[field] + _most_added(field, counts, limits[field])
    ]


def _most_added(field: str, counts: Mapping[str, int], limit: int) -> int:
    """Return how many entries of one limit the rules add at most; for many templates no more than keeps the work bounded."""
    added = sum(number * counts[each] for each, number in _ADDED.get(field, {}).items())
    return min(added, max(limit, _LEAST_ADDED))


def _counts(spec: Object, images: set[object]) -> list[int]:
    """Count the entries of one pod template in the order of ``_LISTS``; add its images to ``images``.

    Fields of a wrong type count as absent: the rules that read them report those.
    """
    try:
        return _counts_of(spec, images)
    except (AttributeError, TypeError):
        return _counts_of(_well_typed(spec), images)


def _counts_of(spec: Object, images: set[object]) -> list[int]:
    mounts = variables = accelerators = with_image = 0
    of = spec.get
    names = len(of("overhead") or ())
    regular, init, ephemeral = of("containers") or (), of("initContainers") or (), of("ephemeralContainers") or ()
    for container in (*init, *regular, *ephemeral):
        get = container.get
        mounts += len(get("volumeMounts") or ())
        variables += len(get("env") or ()) + len(get("envFrom") or ())
        image = get("image")
        if image is not None:
            images.add(image)
            with_image += 1
        resources = get("resources")
        if resources:
            amounts = (*(resources.get("limits") or ()), *(resources.get("requests") or ()))
            names += len(amounts)
            # An extended resource has a name with a slash.
            accelerators += "claims" in resources or "/" in "".join(amounts)
    terms, values = _affinity(of("affinity"))
    return [
        *(len(regular) + len(ephemeral), len(init), accelerators, with_image, len(of("volumes") or ()), mounts, variables, names),
        *(len(of("resourceClaims") or ()), len(of("tolerations") or ()), len(of("nodeSelector") or ()), terms, values),
        len(of("topologySpreadConstraints") or ()),
    ]


def _well_typed(spec: Object) -> Object:
    """Return ``spec`` without the fields that are no list or map where the API has one."""
    typed = {name: value for name, value in spec.items() if type(value) is list or type(value) is dict}
    for field in ("initContainers", "containers", "ephemeralContainers"):
        containers = typed.get(field)
        typed[field] = [_container(item) for item in containers if type(item) is dict] if type(containers) is list else []
    return typed


def _container(container: Object) -> Object:
    typed = {name: value for name, value in container.items() if type(value) is list or type(value) is dict}
    image, resources = container.get("image"), typed.get("resources")
    amounts = resources if type(resources) is dict else {}
    named: Object = {
        name: {str(key): None for key in value} for name, value in amounts.items() if type(value) is dict and name != "claims"
    }
    typed["resources"] = {**named, "claims": {}} if "claims" in amounts else named
    return {**typed, "image": image if type(image) is str else None}


def _affinity(value: object) -> tuple[int, int]:
    """Count the terms of an affinity, and the expressions and values in them."""
    if not value:
        return 0, 0
    terms = values = 0
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is list:
            pending.extend(item)
        elif type(item) is dict:
            for name, field in item.items():
                if name in _VALUES and (type(field) is list or type(field) is dict):
                    values += len(field)
                elif name in _TERMS and type(field) is list:
                    terms += len(field)
            pending.extend(item.values())
    return terms, values


_TERMS: Final = frozenset({"nodeSelectorTerms", REQUIRED_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution"})
_VALUES: Final = frozenset(
    {"matchExpressions", "matchFields", "matchLabels", "values", "namespaces", "matchLabelKeys", "mismatchLabelKeys"}
)


def _over(field: str, noun: str, number: int, most: int, path: Path) -> Finding:
    return Finding(
        _reason(field),
        path,
        f"the object has {number} {noun}, more than the limit of {most}, so gpugate neither edits nor checks it",
        f"Use at most {most}, or ask the platform team to raise {to_camel(field)} of the rule object-size.",
        measure=number,
    )


def _reason(field: str) -> str:
    return f"TooMany{to_pascal(field)}"


REASONS: Final[dict[str, Reason]] = {
    _reason(field): Reason(f"The object has more {noun} than the limit, so gpugate does not judge it.", owner_reviewed_warns=True)
    for field, noun in (("pod_sets", _POD_SETS), *((field, noun) for field, (noun, _) in _LISTS.items()))
}
_FIELDS: Final = {_reason(field): field for field in ("pod_sets", *_LISTS)}
RULE = Rule(
    id="object-size",
    title="Objects have no more entries than gpugate can judge in time",
    since="0.1.0",
    params=ObjectSizeParams,
    reasons=REASONS,
    check=check,
    reads=SCHEDULING_FIELDS | {"env", "envFrom", "image", "topologySpreadConstraints", "volumeMounts", "volumes"},
    documentation=__doc__,
)
