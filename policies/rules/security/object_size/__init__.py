"""Objects with many times more entries than any real workload are not judged.

## What it does

Counts containers, volumes, tolerations and other entries of an object before any other rule runs. If a count is over its limit,
gpugate neither edits the object nor checks it further, so that one object cannot keep the reviews of others waiting. In Enforce,
the object is refused. In Warn and DryRun, and where no policy binds this rule, it passes without edits and checks, and the finding
says so.

An UPDATE is refused only if it goes over a limit, or further over one. It passes unjudged if only the old object is over a limit,
since rules compare the two. The limits hold in every mode, and for objects that are
exempt from this rule: these are never refused. Where the rule is Disabled or not bound, the default limits hold. To have larger
objects judged, raise the limit.

No object is refused for what gpugate itself adds. The validating webhook sees an object after its edits, so it allows more
volumes, mounts, environment variables, names of resources, tolerations and scheduling terms: as many as the rules may add.

## Why

The apiserver stores objects of up to 1.5 MB and waits for the webhook. A pod of 55 KB can list 600 init containers.

No real workload is near these limits. In 5,820 pod templates of Kubernetes, Kueue, JobSet, Kubeflow, KubeRay, the NVIDIA GPU
Operator and the AI-on-GKE examples, the largest pod has 9 containers, 4 init containers, 20 volumes, 34 mounts, 39 environment
variables, 4 tolerations and 6 affinity terms. The largest object has 4 pod templates. The default limits are at least 20 times
these figures. They also leave room for 128 pod templates, such as the worker groups of a RayCluster. Each may have 2 containers,
one of them with an accelerator, 8 volumes, 32 mounts, 64 environment variables, 4 tolerations, 4 labels in the node selector,
2 affinity terms and 2 topology spread constraints.

## Practice

- None of the guides speaks of the size of an object: the rule is for the webhook's own availability.

## Example

A pod with 600 init containers: "the object has 600 init containers, more than the limit of 256, so gpugate does not check it".
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Final, cast

from pydantic import Field
from pydantic.alias_generators import to_camel, to_pascal

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import MOST
from gpugate.policies.kube.fields import Path
from gpugate.policies.rules.security.object_size.counts import count_all, is_small
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS
from gpugate.policies.workloads.workload import Workload

_Limit = Annotated[int, Field(ge=1, le=100_000)]


class ObjectSizeParams(Params):
    """Parameters of `object-size`: the most entries of one object, all its pod templates together."""

    pod_sets: _Limit = 128
    """Pod templates."""
    containers: _Limit = 256
    """Containers, without init containers."""
    init_containers: _Limit = 256
    """Init containers, sidecars among them."""
    accelerator_containers: _Limit = 128
    """Containers that request an accelerator."""
    images: _Limit = 256
    """Different images."""
    volumes: _Limit = 1024
    """Volumes."""
    volume_mounts: _Limit = 4096
    """Volume mounts."""
    env: _Limit = 8192
    """Environment variables, and sources of them."""
    resource_names: _Limit = 2048
    """Names in requests, limits and overhead."""
    resource_claims: _Limit = 256
    """Resource claims."""
    tolerations: _Limit = 512
    """Tolerations."""
    node_selector: _Limit = 512
    """Labels in node selectors."""
    affinity_terms: _Limit = 256
    """Terms of node and pod affinity."""
    affinity_values: _Limit = 4096
    """Expressions and their values in affinity terms."""
    topology_spread_constraints: _Limit = 256
    """Topology spread constraints."""

    @cached_property
    def limits(self) -> list[int]:
        """The limits on lists, in the order of ``_LISTS``."""
        return [getattr(self, field) for field in _LISTS]

    @cached_property
    def least(self) -> int:
        """The least of the limits on lists."""
        return min(self.limits)

    @cached_property
    def most_read(self) -> int:
        """The most containers that are read; more are over a limit without it."""
        return max(self.containers + self.init_containers, 4096)


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
    number = workload.unopened or len(pod_sets)
    if number > params.pod_sets:
        yield _over("pod_sets", _POD_SETS, number, params.pod_sets, pod_sets[0].path if pod_sets else ("spec",))
    counts, images = count_all([pods.spec for pods in pod_sets], params.most_read)
    for at, (field, (noun, name)) in enumerate(_LISTS.items()):
        of_pod_sets = [count[at] for count in counts]
        number = images if at == _IMAGES else sum(of_pod_sets)
        if number > params.limits[at]:
            largest = pod_sets[of_pod_sets.index(max(of_pod_sets))]
            yield _over(field, noun, number, params.limits[at], largest.field(name))


def most_pod_sets(params: Params) -> int:
    """Return the limit on pod templates."""
    return cast("ObjectSizeParams", params).pod_sets


def count(workload: Workload, most_read: int = 100_000) -> dict[str, int]:
    """Return the number of entries of the object for each limit, by the name of the parameter."""
    counts, images = count_all([pods.spec for pods in workload.pod_sets], most_read)
    sums = {field: sum(numbers) for field, *numbers in zip(_LISTS, *counts, strict=True)}
    return {"pod_sets": workload.unopened or len(counts), **sums, "images": images}


def over_limits(workload: Workload, binding: BoundRule, *, edited: bool) -> list[Finding]:
    """Return a finding for every limit that the object is over; ``edited``: it may have what the rules added."""
    limits = cast("ObjectSizeParams", binding.params)
    # The usual case: fewer entries in all than any limit.
    if len(workload.pod_sets) == 1 and is_small(workload.pod_sets[0].spec, limits.least):
        return []
    findings = binding.findings(workload, EMPTY_SNAPSHOT)
    return _without_edits(findings, workload, limits) if findings and edited else findings


def before_update(finding: Finding) -> Finding:
    """Return ``finding``, about the old object of an UPDATE, as a warning."""
    return finding.as_warning()._replace(
        message=finding.message.replace("the object has", "before this update, the object had", 1),
        remedy="Check the object with gpugate review, since no rule has checked this update.",
    )


def _without_edits(findings: Iterable[Finding], workload: Workload, params: ObjectSizeParams) -> list[Finding]:
    """Return ``findings`` without those of counts that the edits of rules explain."""
    counts = count(workload, params.most_read)
    fields = ((finding, _FIELDS[finding.reason]) for finding in findings)
    with_limits = ((finding, field, getattr(params, field)) for finding, field in fields)
    return [finding for finding, field, limit in with_limits if finding.measure > limit + _most_added(field, counts, limit)]


def _most_added(field: str, counts: Mapping[str, int], limit: int) -> int:
    """Return how many entries of one limit the rules add at most; for many templates no more than keeps the work bounded."""
    added = sum(number * counts[each] for each, number in _ADDED.get(field, {}).items())
    return min(added, max(limit, _LEAST_ADDED))


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
