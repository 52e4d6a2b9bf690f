"""The watched kinds with their versions, and the reduction of each object to a record as it arrives."""

import io
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gpugate.policies.cluster.builder import key_of
from gpugate.policies.cluster.kinds import BY_RESOURCE, CONFIGURATION, Key
from gpugate.policies.kube.fields import MalformedError
from gpugate.webhook.kube.types import JsonObject, WatchedKind

POLICIES: Final = WatchedKind("GPUPolicy", "gpugate.io", ("v1alpha1",), "gpupolicies")

_KUEUE: Final = ("v1beta2", "v1beta1")
#: Versions by resource; the first that is served is watched.
_VERSIONS: Final = {
    **dict.fromkeys(("nodes", "pods", "namespaces", "limitranges", "resourcequotas", "priorityclasses", "runtimeclasses"), ("v1",)),
    **dict.fromkeys(("localqueues", "clusterqueues", "cohorts", "resourceflavors"), _KUEUE),
    "topologies": (*_KUEUE, "v1alpha1"),
    **dict.fromkeys(("workloadpriorityclasses", "workloads"), _KUEUE),
    "podgroups.scheduling.x-k8s.io": ("v1alpha1",),
    "podgroups.scheduling.volcano.sh": ("v1beta1",),
    "podgroups.scheduling.k8s.io": ("v1beta1", "v1alpha3", "v1alpha2"),
    "noderesourcetopologies": ("v1alpha2", "v1alpha1"),
    **dict.fromkeys(("deviceclasses", "resourceclaims", "resourceclaimtemplates"), ("v1", "v1beta2", "v1beta1")),
}


#: Namespace of Kueue in its own manifests (v0.15 ``config/default``).
KUEUE_NAMESPACE: Final = "kueue-system"


def fact_kinds(kueue_namespace: str = KUEUE_NAMESPACE) -> tuple[WatchedKind, ...]:
    """Return all kinds that snapshots are made from, for a Kueue in this namespace."""
    kinds = [
        WatchedKind(kind.kind, kind.group, versions, resource.partition(".")[0], resource=resource)
        for resource, versions in _VERSIONS.items()
        for kind in (BY_RESOURCE[resource],)
    ]
    # The ConfigMap with Kueue's Configuration (v0.15 ``config/components/manager``), only in Kueue's own namespace: users may
    # create a ConfigMap of this name elsewhere.
    selector = f"metadata.name=kueue-manager-config,metadata.namespace={kueue_namespace}"
    configuration = WatchedKind("ConfigMap", "", ("v1",), "configmaps", field_selector=selector, resource=CONFIGURATION.resource)
    return (*kinds, configuration)


FACT_KINDS: Final = fact_kinds()
#: Kueue's default has 3 KB. Parsing this much takes a second and blocks reviews. Characters.
_MAX_CONFIGURATION: Final = 64 * 1024


class Observed(NamedTuple):
    """A watched object, reduced to what is kept.

    Attributes:
        uid: its uid; empty if not kept.
        record: the record for the snapshot; None if no rule uses the object.
        error: why the object is unreadable; empty if it is readable.
    """

    key: Key
    uid: str
    record: Any
    error: str = ""


def reducer_for(kind: WatchedKind) -> Callable[[JsonObject], Observed]:
    """Return the function that reduces objects of ``kind`` to `Observed` on arrival, so that no list is held with all fields."""
    if kind is POLICIES:
        return lambda item: Observed(key_of(item), str(item["metadata"].get("uid") or ""), item)
    read = _configuration if kind.resource == CONFIGURATION.resource else BY_RESOURCE[kind.resource].read
    # The uid of a pod ends an entry of the in-flight ledger.
    with_uid = kind.resource == "pods"

    def reduce(item: JsonObject) -> Observed:
        key = key_of(item)
        try:
            record = read(item)
        except MalformedError as error:
            return Observed(key, "", None, str(error))
        return Observed(key, str(item["metadata"].get("uid") or "") if with_uid else "", record)

    return reduce


def configuration_in(config_map: JsonObject) -> JsonObject | None:
    """Return Kueue's Configuration from its ConfigMap; None if it holds none.

    Raises:
        MalformedError: the text is not YAML, or too long.
    """
    data = config_map.get("data")
    for text in data.values() if isinstance(data, dict) else ():
        if isinstance(text, str) and "config.kueue.x-k8s.io" in text:
            configuration = _yaml(text)
            return configuration if isinstance(configuration, dict) else None
    return None


def _yaml(text: str) -> Any:  # noqa: ANN401 - any YAML value
    if len(text) > _MAX_CONFIGURATION:
        message = f"longer than {_MAX_CONFIGURATION} characters, too long for a Configuration of Kueue"
        raise MalformedError(("data",), message)
    try:
        return YAML(typ="safe", pure=True).load(io.StringIO(text))
    # Invalid dates or numbers, and endless nesting.
    except (YAMLError, ValueError, RecursionError) as error:
        message = str(error).partition("\n")[0]
        raise MalformedError(("data",), message) from None


def _configuration(config_map: JsonObject) -> Any:  # noqa: ANN401 - a record
    configuration = configuration_in(config_map)
    return None if configuration is None else CONFIGURATION.read(configuration)
