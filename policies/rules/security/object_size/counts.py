"""Count the entries of pod templates in one pass, before any rule reads them."""

from collections.abc import Sequence
from typing import Final

import orjson

from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.names import REQUIRED_AFFINITY

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
#: Lists and maps of a pod spec, and of a container.
_OF_PODS: Final = (
    *("tolerations", "volumes", "nodeSelector", "containers", "initContainers", "ephemeralContainers"),
    *("overhead", "resourceClaims", "topologySpreadConstraints"),
)
_OF_CONTAINERS: Final = ("env", "volumeMounts", "envFrom")
_TERMS: Final = frozenset({"nodeSelectorTerms", REQUIRED_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution"})
_VALUES: Final = frozenset(
    {"matchExpressions", "matchFields", "matchLabels", "values", "namespaces", "matchLabelKeys", "mismatchLabelKeys"}
)
#: Those of them whose entries are texts.
_TEXTS: Final = frozenset({"matchLabels", "values", "namespaces", "matchLabelKeys", "mismatchLabelKeys"})
#: More than the largest limit that a policy can set.
_MOST_COUNTED: Final = 100_001


def count_all(specs: Sequence[Object], most_read: int) -> tuple[list[list[int]], int]:
    """Return the counts of :func:`count_entries` for each pod spec, and the number of different images."""
    images: set[object] = set()
    listed = sum(len(value) for spec in specs for name in _CONTAINERS if type(value := spec.get(name)) is list)
    return [count_entries(spec, images, most_read if listed <= most_read else 0) for spec in specs], len(images)


def is_small(spec: Object, most: int) -> bool:
    """Return whether all lists and maps of one pod template together have at most ``most`` entries."""
    try:
        # An entry of an affinity takes at least two bytes.
        number = len(orjson.dumps(spec.get("affinity"))) // 2
        for field in _OF_PODS:
            if field in spec:
                number += len(spec[field])
        if number > most:
            return False
        for field in _CONTAINERS:
            for container in spec.get(field, ()):
                for name in _OF_CONTAINERS:
                    if name in container:
                        number += len(container[name])
                resources = container.get("resources")
                if resources:
                    number += sum(map(len, resources.values()))
    except (AttributeError, TypeError):
        return False
    return number <= most


def count_entries(spec: Object, images: set[object], most_read: int) -> list[int]:
    """Count the entries of one pod template in the order of the limits; add its images to ``images``.

    Fields of a wrong type count as absent: the rules that read them report those. The entries of more than ``most_read``
    containers are not counted.
    """
    try:
        return _counts_of(spec, images, most_read)
    except (AttributeError, TypeError):
        return _counts_of(_well_typed(spec, most_read), images, most_read)


def _counts_of(spec: Object, images: set[object], most_read: int) -> list[int]:
    mounts = variables = accelerators = with_image = 0
    of = spec.get
    names = len(of("overhead") or ())
    regular, init, ephemeral = of("containers") or (), of("initContainers") or (), of("ephemeralContainers") or ()
    containers = (*init, *regular, *ephemeral)
    for container in containers if len(containers) <= most_read else ():
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


def _well_typed(spec: Object, most_read: int) -> Object:
    """Return ``spec`` without the fields that are no list or map where the API has one."""
    typed = {name: value for name, value in spec.items() if type(value) is list or type(value) is dict}
    for field in _CONTAINERS:
        containers = typed.get(field)
        if type(containers) is not list:
            typed[field] = []
        elif len(containers) <= most_read:
            typed[field] = [_container(item) for item in containers if type(item) is dict]
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


def _affinity(value: object, most: int = _MOST_COUNTED) -> tuple[int, int]:
    """Count the terms of an affinity, and the expressions and values in them, until there are more than ``most`` together."""
    if not value:
        return 0, 0
    terms = values = 0
    pending = [value]
    while pending and terms + values <= most:
        item = pending.pop()
        if type(item) is list:
            pending.extend(item)
        elif type(item) is dict:
            for name, field in item.items():
                if type(field) is not list and type(field) is not dict:
                    continue
                if name in _VALUES:
                    values += len(field)
                elif name in _TERMS and type(field) is list:
                    terms += len(field)
                if name not in _TEXTS:
                    pending.append(field)
    return terms, values
