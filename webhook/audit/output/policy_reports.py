"""Format an audit as report objects of the cluster: one for each namespace, of bounded size.

Two kinds have the same fields: PolicyReport (``wgpolicyk8s.io/v1alpha2``) and Report (``openreports.io/v1alpha1``), its
successor. A report contains no time, so that it changes only with its results.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from gpugate.webhook.admission.response import cut
from gpugate.webhook.audit.model import AuditedWorkload, Effect, Item

JsonObject: TypeAlias = dict[str, Any]

#: Name of every report.
NAME: Final = "gpugate"
LABELS: Final = {"app.kubernetes.io/managed-by": "gpugate"}
SELECTOR: Final = "app.kubernetes.io/managed-by=gpugate"
#: Annotation with the number of results that do not fit.
LEFT_OUT: Final = "gpugate.io/results-left-out"
#: Limits of one report: an object in etcd is at most 1.5 MiB, and a report is always written as a whole.
MOST_RESULTS: Final = 1000
MOST_BYTES: Final = 256 * 1024
#: Longest message; the page and `gpugate audit` have the whole. Characters.
_MAX_LENGTH: Final = 600


class ReportKind(NamedTuple):
    """One of the kinds of reports."""

    api_version: str
    kind: str
    plural: str

    def collection(self, namespace: str) -> str:
        """Return the API path of the reports of a namespace."""
        return f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}"


POLICY_REPORT: Final = ReportKind("wgpolicyk8s.io/v1alpha2", "PolicyReport", "policyreports")
OPEN_REPORT: Final = ReportKind("openreports.io/v1alpha1", "Report", "reports")

_RESULTS: Final = {
    Effect.REFUSE: ("fail", "high"),
    Effect.CHANGE: ("warn", "low"),
    Effect.WARN: ("warn", "medium"),
    Effect.UNKNOWN: ("error", "info"),
    Effect.EXEMPT: ("skip", "info"),
}
_ORDER: Final = {effect: at for at, effect in enumerate(Effect)}


def reports_of(workloads: Iterable[AuditedWorkload], kind: ReportKind) -> Iterator[JsonObject]:
    """Yield a report for every namespace with workloads, sorted by namespace."""
    by_namespace: dict[str, list[AuditedWorkload]] = {}
    for workload in workloads:
        by_namespace.setdefault(workload.namespace, []).append(workload)
    for namespace in sorted(by_namespace):
        yield report_of(namespace, by_namespace[namespace], kind)


def report_of(namespace: str, workloads: Sequence[AuditedWorkload], kind: ReportKind) -> JsonObject:
    """Return the report of one namespace: the most severe results that fit; the summary counts all of them.

    ``pass`` counts workloads without items, the other fields count results.
    """
    pairs = [(workload, item) for workload in workloads for item in workload.items]
    pairs.sort(key=_most_severe_first)
    counts = Counter(_RESULTS[item.effect][0] for _, item in pairs)
    results = list(_as_many_as_fit(_result(workload, item) for workload, item in pairs[:MOST_RESULTS]))
    metadata: JsonObject = {"name": NAME, "namespace": namespace, "labels": dict(LABELS)}
    if len(results) < len(pairs):
        metadata["annotations"] = {LEFT_OUT: str(len(pairs) - len(results))}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        **({"source": NAME} if kind is OPEN_REPORT else {}),
        "summary": {
            "pass": sum(1 for workload in workloads if not workload.items),
            **{result: counts[result] for result in ("fail", "warn", "error", "skip")},
        },
        "results": results,
    }


def _most_severe_first(pair: tuple[AuditedWorkload, Item]) -> tuple[object, ...]:
    workload, item = pair
    return (_ORDER[item.effect], workload.key, item.rule, item.path, item.reason, item.message)


def _as_many_as_fit(results: Iterable[JsonObject]) -> Iterator[JsonObject]:
    size = 0
    for result in results:
        size += len(orjson.dumps(result)) + 1
        if size > MOST_BYTES:
            return
        yield result


def _result(workload: AuditedWorkload, item: Item) -> JsonObject:
    result, severity = _RESULTS[item.effect]
    # The name of an owner of an unknown kind has no length limit.
    resource = {
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "namespace": workload.namespace,
        "name": workload.name,
        "uid": workload.uid,
    }
    properties = {
        "effect": item.effect.value,
        "mode": item.mode.value,
        "reason": item.reason,
        "path": item.path,
        "team": workload.team,
        "accelerators": ", ".join(f"{count} {name}" for name, count in workload.devices),
    }
    return {
        "source": NAME,
        "policy": item.policy.partition("@")[0] or NAME,
        "rule": item.rule,
        "category": "GPU",
        "severity": severity,
        "result": result,
        "scored": True,
        "message": _message(item),
        "resources": [_texts(resource)],
        "properties": _texts(properties),
    }


def _texts(texts: JsonObject) -> JsonObject:
    return {key: cut(text, _MAX_LENGTH) for key, text in texts.items() if text}


def _message(item: Item) -> str:
    would = "would be " if item.rehearsed and item.effect in {Effect.REFUSE, Effect.CHANGE} else ""
    head = {Effect.REFUSE: f"{would}refused: ", Effect.CHANGE: f"{would}changed: "}.get(item.effect, "")
    return cut(f"{head}{item.message}" + (f". {item.remedy}" if item.remedy else ""), _MAX_LENGTH)
