"""Answer recorded reviews again, by another policy."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Judged, Severity
from gpugate.policies.framework.decision import Change, Decision, Phase
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import kind_of
from gpugate.webhook.admission.admission_review import BadRequestError, Request, parse_review
from gpugate.webhook.admission.handler import open_request
from gpugate.webhook.admission.recorder import RECORDED, SUFFIX
from gpugate.webhook.files.documents import STDIN, SUFFIXES, Document, UnreadableInput, expand_lists, files_of, load, parse

_LINES: Final = (SUFFIX, ".ndjson")


class RecordedReview(NamedTuple):
    """One review of an input.

    Attributes:
        place: its line or document in the file, from 1; 0 for the file itself.
        value: its content; None for an unreadable one.
        problem: why it is unreadable.
    """

    file: str
    place: int
    value: Any
    problem: str = ""


class AnswerChange(enum.Enum):
    """Difference between the new answer and the recorded one."""

    REFUSED = "refused"
    FREED = "freed"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    SAME = "same"
    SKIPPED = "skipped"
    INVALID = "invalid"


class RecordedAnswer(NamedTuple):
    """The recorded answer to a review.

    Attributes:
        changed: the rules that changed the object.
        denied: rule and reason of each denial.
        policies: the policies in force, with their generations.
        endpoint: the webhook endpoint that answered; empty if unknown.
    """

    allowed: bool
    changed: tuple[str, ...]
    denied: tuple[str, ...]
    policies: tuple[str, ...]
    endpoint: str


@dataclass(slots=True)
class Replayed:
    """One review, answered again.

    Attributes:
        effect: the difference between the answers.
        request: the request; None for an unreadable one.
        recorded: the recorded answer; None if none was recorded.
        changes: the changes by the new answer.
        denied: the denials by the new answer.
        note: why the review was skipped or is invalid.
        title: title of its object; reviews of the pods of one controller share it.
    """

    source: RecordedReview
    effect: AnswerChange
    request: Request | None = None
    recorded: RecordedAnswer | None = None
    changes: list[Change] = field(default_factory=list)
    denied: list[Judged] = field(default_factory=list)
    note: str = ""
    title: str = ""

    def drop_objects(self) -> Replayed:
        """Keep what a report needs and drop the objects: a week of reviews does not fit into memory."""
        if self.request is not None:
            request = self.request
            name = request.generated_name or request.name or "without a name"
            kind = f"{request.kind}/{request.subresource}" if request.subresource else request.kind
            self.title = f"{request.operation} {kind} {request.namespace}/{name}"
            self.request = request._replace(object=None, old=None)
        self.source = self.source._replace(value=None)
        return self

    @property
    def gained(self) -> list[str]:
        """Return the rules that change the object now and did not change it before."""
        before = self.recorded.changed if self.recorded is not None else ()
        return [change.rule for change in self.changes if change.rule not in before]

    @property
    def lost(self) -> list[str]:
        """Return the rules that changed the object before and do not change it now."""
        now = {change.rule for change in self.changes}
        return [rule for rule in self.recorded.changed if rule not in now] if self.recorded is not None else []


def read(paths: Iterable[str]) -> Iterator[RecordedReview]:
    """Yield every review of ``paths``: recordings by line, other files by document."""
    for name in paths:
        if name != STDIN and Path(name).is_dir():
            recordings = sorted(str(path) for path in Path(name).iterdir() if path.suffix in _LINES and path.is_file())
            if recordings:
                for path in recordings:
                    yield from _read_file(path)
                continue
        for file in files_of([name]):
            if isinstance(file, UnreadableInput):
                yield RecordedReview(file.file, 0, None, file.problem.replace(SUFFIXES[0], f"{SUFFIX}, {SUFFIXES[0]}"))
            else:
                yield from _read_file(file)


def _read_file(file: str) -> Iterator[RecordedReview]:
    source = load(file)
    if isinstance(source, UnreadableInput):
        yield RecordedReview(file, 0, None, source.problem)
    elif file.endswith(_LINES) or _is_lines(source.text):
        # Split at newlines only: strings may contain other line separators.
        for number, line in enumerate(source.text.split("\n"), start=1):
            if line.strip():
                try:
                    yield RecordedReview(file, number, orjson.loads(line))
                except orjson.JSONDecodeError as error:
                    yield RecordedReview(file, number, None, f"is not JSON: {str(error).partition(':')[0]}")
    else:
        for document in expand_lists(parse(file, source.text)):
            if isinstance(document, Document):
                yield RecordedReview(file, document.number, document.value)
            else:
                yield RecordedReview(file, document.number, None, document.problem)


def _is_lines(text: str) -> bool:
    """Return whether the first line is a whole JSON object, and another one follows."""
    first, _, rest = text.lstrip().partition("\n")
    if not first.startswith("{") or not rest.lstrip().startswith("{"):
        return False
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return True


def replay(sources: Iterable[RecordedReview], policies: PolicySet, snapshot: ClusterSnapshot) -> Iterator[Replayed]:
    """Answer every review again, by ``policies`` and ``snapshot``."""
    for source in sources:
        try:
            yield _replay_one(source, policies, snapshot).drop_objects()
        except (BadRequestError, MalformedError) as error:
            yield Replayed(source, AnswerChange.INVALID, note=str(error))
        except RecursionError:
            yield Replayed(source, AnswerChange.INVALID, note="is nested too deeply to be read")


def _replay_one(source: RecordedReview, policies: PolicySet, snapshot: ClusterSnapshot) -> Replayed:
    if source.problem:
        return Replayed(source, AnswerChange.INVALID, note=source.problem)
    request = parse_review(source.value)
    recorded = _recorded_answer(source.value.get(RECORDED))
    try:
        decision = _decide(request, recorded, policies, snapshot)
    except MalformedError as error:
        if recorded is None or recorded.allowed:
            raise
        return Replayed(source, AnswerChange.SAME, request, recorded, note=str(error))
    if decision is None:
        return Replayed(source, AnswerChange.SKIPPED, request, recorded, note="not reviewed by gpugate")
    denied = [finding for finding in decision.findings if finding.severity is Severity.DENY]
    result = Replayed(source, AnswerChange.SAME, request, recorded, [] if denied else decision.changes, denied)
    result.effect = _effect(result)
    return result


def _effect(replayed: Replayed) -> AnswerChange:
    allowed = replayed.recorded is None or replayed.recorded.allowed
    if allowed and replayed.denied:
        return AnswerChange.REFUSED
    if not allowed and not replayed.denied:
        return AnswerChange.FREED
    if replayed.gained:
        return AnswerChange.CHANGED
    return AnswerChange.UNCHANGED if allowed and replayed.lost else AnswerChange.SAME


def _decide(request: Request, recorded: RecordedAnswer | None, policies: PolicySet, snapshot: ClusterSnapshot) -> Decision | None:
    """Decide as the recorded endpoint does: /mutate edits, /validate checks the edited object."""
    if recorded is None or recorded.endpoint != "validate":
        return _phase(request, policies, snapshot, Phase.REVIEW if recorded is None or not recorded.endpoint else Phase.MUTATE)
    edited = request._replace(object=clone(request.object))
    decision = _phase(request, policies, snapshot, Phase.CHECK)
    if decision is None or not decision.refused or not recorded.allowed or not _is_edited(request):
        return decision
    # Apply the changes that the policy would have made at /mutate.
    _phase(edited, policies, snapshot, Phase.MUTATE)
    return _phase(edited, policies, snapshot, Phase.CHECK)


def _is_edited(request: Request) -> bool:
    """Return whether the apiserver calls /mutate before /validate for the request."""
    kind = kind_of(request.api_version, request.kind)
    return request.operation == "CREATE" or not ((kind is not None and kind.is_pod) or request.subresource)


def _phase(request: Request, policies: PolicySet, snapshot: ClusterSnapshot, phase: Phase) -> Decision | None:
    workload = open_request(request, snapshot, policies.most_pod_sets)
    if workload is None:
        return None
    bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
    return decide(workload, bound, snapshot, phase)


def _recorded_answer(recorded: Any) -> RecordedAnswer | None:  # noqa: ANN401 - any JSON value
    if not isinstance(recorded, dict) or not isinstance(recorded.get("allowed"), bool):
        return None
    findings = recorded.get("findings")
    denied = [
        f"{finding.get('rule')}/{finding.get('reason')}"
        for finding in (findings if isinstance(findings, list) else ())
        if isinstance(finding, dict) and finding.get("severity") == Severity.DENY.value
    ]
    endpoint = recorded.get("endpoint")
    return RecordedAnswer(
        recorded["allowed"],
        _texts(recorded.get("changed")),
        tuple(denied),
        _texts(recorded.get("policies")),
        endpoint if endpoint in {"mutate", "validate"} else "",
    )


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - any JSON value
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()
