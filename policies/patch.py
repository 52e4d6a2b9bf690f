"""Edits of rules, their application, and their JSON Patch.

A rule returns edits by meaning (set this field, append to this list). :class:`PatchBuilder` applies them in place to the
object under review and records the patch meanwhile, so no objects are compared on the hot path.
"""

from typing import Any, Final, Literal, NamedTuple

from gpugate.policies.kube.fields import MalformedError, Object, Path, lookup, pointer

#: Lists that server-side apply and three-way merge join by key, so that an element added in admission is no
#: drift (Kubernetes OpenAPI, ``x-kubernetes-list-type: map`` and ``patchMergeKey``; ``replicatedJobs``: the CRDs of JobSet and of
#: Kubeflow's TrainingRuntime). All others are atomic, also Ray's ``workerGroupSpecs``.
_KEYED_LISTS: Final = frozenset(
    {"containers", "env", "ephemeralContainers", "imagePullSecrets", "initContainers", "replicatedJobs", "volumeMounts", "volumes"}
)
#: Maps that server-side apply replaces as a whole.
_ATOMIC_MAPS: Final = frozenset({"nodeSelector", "matchLabels", "labelSelector"})


class Edit(NamedTuple):
    """A change that a rule makes.

    Attributes:
        op: ``set`` a field, ``append`` to a list (created if absent), ``remove`` a field.
        path: the field, or the list that ``append`` extends.
        value: the new value; copied when it is applied.
        note: short description for messages: ``toleration nvidia.com/gpu:NoSchedule``.
        group: edits of one rule with the same group are applied all or none.
        defaulted: True if the replaced value is a default of the API server.
    """

    op: Literal["set", "append", "remove"]
    path: Path
    value: Any = None
    note: str = ""
    group: str = ""
    defaulted: bool = False


class PatchBuilder:
    """The object under review, the edits applied to it, and their JSON Patch."""

    __slots__ = ("_fresh", "ops", "overwritten", "root")

    def __init__(self, root: Object) -> None:
        self.root = root
        self.ops: list[Object] = []
        #: Previous value of each overwritten field, by its JSON Pointer.
        self.overwritten: dict[str, Any] = {}
        # Ids of maps and lists that this review added. A later edit inside them changes the value of an
        # operation already recorded, and needs no operation of its own.
        self._fresh: set[int] = set()

    def apply(self, edit: Edit) -> bool:
        """Apply ``edit`` and return whether it changes the object; raise a ``MalformedError`` if a parent is no map or list."""
        op, path, value = edit.op, edit.path, edit.value
        if op == "remove":
            return self._remove(path)
        if type(value) is dict or type(value) is list:
            value = self._adopt(value)
        parent: Any = self.root
        key = path[-1]
        for part in path[:-1]:
            child = parent.get(part) if type(parent) is dict else self._element(parent, path, part)
            if type(child) is dict or type(child) is list:
                parent = child
            elif child is None:
                # One operation adds the first missing map with everything below it.
                return self._add_branch(parent, path, self._wrap(value) if op == "append" else value)
            else:
                raise MalformedError(self._existing_part(path), "must be a map")
        current = parent.get(key) if type(parent) is dict else self._element(parent, path, key)
        if op == "append":
            if current is not None:
                return self._extend(current, path, value)
            value = self._wrap(value)
        return self._put(parent, path, current, value)

    def _existing_part(self, path: Path) -> Path:
        """Return the part of ``path`` down to the first value that is no map or list."""
        value: Any = self.root
        for depth, part in enumerate(path):
            value = lookup(value, (part,))
            if type(value) is not dict and type(value) is not list:
                return path[: depth + 1]
        return path

    def _element(self, parent: list[Any], path: Path, index: str | int) -> Any:  # noqa: ANN401 - any JSON value
        if type(index) is not int or index >= len(parent):
            raise MalformedError(self._existing_part(path), "does not exist")
        return parent[index]

    def _add_branch(self, parent: Any, path: Path, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        above: Any = self.root
        depth = 0
        while above is not parent:
            above, depth = above[path[depth]], depth + 1
        for key in reversed(path[depth + 1 :]):
            value = {key: value}
            self._fresh.add(id(value))
        return self._put(parent, path[: depth + 1], None, value)

    def _extend(self, existing: Any, path: Path, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        if type(existing) is not list:
            raise MalformedError(path, "must be a list")
        existing.append(value)
        if id(existing) not in self._fresh:
            self.ops.append({"op": "add", "path": f"{pointer(path)}/-", "value": value})
        return True

    def _wrap(self, value: Any) -> list[Any]:  # noqa: ANN401 - any JSON value
        wrapped = [value]
        self._fresh.add(id(wrapped))
        return wrapped

    def _put(self, parent: Any, path: Path, current: Any, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        key = path[-1]
        exists = current is not None or type(parent) is list or key in parent
        if exists and current == value and type(current) is type(value):
            return False
        parent[key] = value
        if id(parent) not in self._fresh:
            place = pointer(path)
            if current is not None:
                self.overwritten.setdefault(place, current)
            self.ops.append({"op": "replace" if exists else "add", "path": place, "value": value})
        return True

    def _remove(self, path: Path) -> bool:
        parent = lookup(self.root, path[:-1])
        key = path[-1]
        if type(parent) is not dict or key not in parent:
            return False
        del parent[key]
        if id(parent) not in self._fresh:
            self.ops.append({"op": "remove", "path": pointer(path)})
        return True

    def _adopt(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a copy of ``value``, registered as added by this review; later edits change the copy alone."""
        copy: Any = value.copy()
        for key, item in value.items() if type(value) is dict else enumerate(value):
            if type(item) is dict or type(item) is list:
                copy[key] = self._adopt(item)
        self._fresh.add(id(copy))
        return copy

    def drifts(self, edit: Edit) -> bool:
        """Return whether ``edit`` may show as drift in a tool that compares the live object with Git.

        An edit that adds a missing key, or an element to a list merged by key, never does. One that overwrites a value, or extends
        an atomic list or map that the object sets, does in some mode of some tool.
        """
        value: Any = self.root
        atomic = False
        for part in edit.path:
            if id(value) in self._fresh:
                return False
            child = lookup(value, (part,))
            if child is None:
                return atomic or edit.op == "remove"
            atomic = atomic or (part in _ATOMIC_MAPS and child != {}) or (type(child) is list and part not in _KEYED_LISTS)
            value = child
        if edit.op == "append":
            if type(value) is list and (not value or id(value) in self._fresh):
                return False
            return edit.path[-1] not in _KEYED_LISTS
        return not edit.defaulted and (edit.op == "remove" or value != edit.value)
