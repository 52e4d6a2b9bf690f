"""Who a workload belongs to: the labels and annotations that say so, on it, on its pods or on its namespace."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import LONGEST_LABEL, LabelKey, LabelName, unique
from gpugate.policies.kube.fields import Object, Path, string
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Labels and annotations, each with its path.
_Holders: TypeAlias = tuple[tuple[Object, Path], tuple[Object, Path]]
#: Keys in a policy, and other spellings of one.
FEW: Final = 16
#: A longer annotation tells no name, and is not copied to pods. Characters.
_LONGEST: Final = 253
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class AttributionKey(Params):
    """One thing that a workload says of who it belongs to."""

    what: LabelName
    """What it tells, in a word: `owner`. Messages and the audit call it so."""
    name: LabelKey
    """The label or annotation that tells it."""
    kind: Literal["Label", "Annotation"] = "Label"
    """What `name` is. Cost tools read pods' labels as they are; OpenCost reads annotations only where it is told to."""
    aliases: Annotated[tuple[LabelKey, ...], *unique(FEW)] = ()
    """Other labels and annotations that are taken for it."""
    required: bool = True
    """Whether a workload is refused where neither it nor its namespace tells."""
    from_namespace: bool = True
    """Whether it is taken from the namespace where the workload does not tell."""
    namespace_keys: Annotated[tuple[LabelKey, ...], *unique(FEW)] = ()
    """Labels and annotations of the namespace that tell it; where the list is empty, `name` and `aliases`.
    `kubernetes.io/metadata.name` is the namespace's own name."""
    to_pods: bool = True
    """Whether the pods' templates get it, too."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every key that a workload may tell it by."""
        return (self.name, *self.aliases)

    @property
    def of_namespace(self) -> tuple[str, ...]:
        """The keys of the namespace that are looked at."""
        if not self.from_namespace:
            return ()
        return self.namespace_keys or self.spellings

    @property
    def holder(self) -> str:
        """The field of the metadata that ``name`` is in."""
        return "labels" if self.kind == "Label" else "annotations"


Keys = Annotated[tuple[AttributionKey, ...], Field(max_length=FEW)]

DEFAULT_KEYS: Final = (
    AttributionKey(what="owner", name="gpugate.io/owner", aliases=("owner", "gpugate.io/team", "team", "app.kubernetes.io/team")),
    AttributionKey(what="project", name="gpugate.io/project", aliases=("project",)),
    AttributionKey(
        what="cost-center",
        name="gpugate.io/cost-center",
        aliases=("cost-center", "cost-centre", "gpugate.io/cost-centre", "costcenter"),
    ),
)


class Told(NamedTuple):
    """What somebody said for a key.

    Attributes:
        value: the value.
        source: where it stands, in words.
    """

    value: str
    source: str


def told_by(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Told | None:
    """What the workload says for ``key``, else its pods, else its namespace; None where nobody says anything.

    Raises:
        MalformedError: a label or annotation is no text.
    """
    own = _said(_own_texts(workload), key)
    if own is not None:
        return Told(own, "")
    for pods in workload.pod_sets if not workload.is_pod() else ():
        value = told_by_pods(pods, key)
        if value is not None:
            return Told(value, "as its pods say")
    value = snapshot.namespace_says(workload.namespace, key.of_namespace)
    return None if value is None else Told(value, f"of namespace {workload.namespace}")


def told_by_pods(pods: PodSet, key: AttributionKey) -> str | None:
    """What the pods themselves say for ``key``."""
    own = ((pods.labels(), pods.meta("labels")), (pods.annotations(), pods.meta("annotations")))
    return _said(own, key)


def _own_texts(workload: Workload) -> _Holders:
    return ((workload.labels(), ("metadata", "labels")), (workload.annotations(), ("metadata", "annotations")))


def _said(holders: _Holders, key: AttributionKey) -> str | None:
    """The value under the first spelling of ``key`` that is there; its own kind counts before the other."""
    return next(_values(holders, key), None)


def _values(holders: _Holders, key: AttributionKey) -> Iterator[str]:
    both = holders if key.kind == "Label" else holders[::-1]
    for name in key.spellings:
        for holder, path in both:
            value: Any = holder.get(name)
            if value and (type(value) is str or string(holder, name, path)):
                yield value


def fault_of(key: AttributionKey, value: str) -> str:
    """Why ``value`` cannot stand under the key's name; empty where it can."""
    if key.kind == "Annotation":
        return f"is longer than {_LONGEST} characters" if len(value) > _LONGEST else ""
    if len(value) > LONGEST_LABEL:
        return f"is longer than {LONGEST_LABEL} characters, which a label's value may not be"
    if _LABEL_VALUE.fullmatch(value) is None:
        return "is no value of a label, which has letters, digits, - . and _ alone, and begins and ends with a letter or digit"
    return ""
