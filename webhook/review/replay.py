"""Recorded reviews, answered again: what a policy would do to what came in."""

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
from gpugate.webhook.files.documents import STDIN, SUFFIXES, Document, UnreadableInput, files_of, load, parse, unfolded

_LINES: Final = (SUFFIX, ".ndjson")


class RecordedReview(NamedTuple):
    """One review of an input.

    Attributes:
        file: where it was read from.
        place: its line, or its document, from 1; 0 for the file itself.
        value: what stands there; None where it cannot be read.
        problem: why it cannot be read.
    """

    file: str
    place: int
    value: Any
    problem: str = ""


class AnswerChange(enum.Enum):
    """How the answer now differs from the answer then."""

    REFUSED = "refused"
    FREED = "freed"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    SAME = "same"
    SKIPPED = "skipped"
    INVALID = "invalid"


class RecordedAnswer(NamedTuple):
    """What was answered when the review was recorded.

    Attributes:
        allowed: whether the object was let in.
        changed: the rules that changed it.
        denied: rule and reason of what refused it.
        policies: the policies in force, with their generations.
        endpoint: the door that answered.
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
        source: where it was read from.
        effect: how the answer differs.
        request: the request; None where it cannot be read.
        then: the recorded answer; None where none was recorded.
        changes: what the rules change now.
        denied: the findings that refuse it now.
        note: why it was skipped or is invalid.
        title: what it was about; reviews of the pods of one controller have one title.
    """

    source: RecordedReview
    effect: AnswerChange
    request: Request | None = None
    then: RecordedAnswer | None = None
    changes: list[Change] = field(default_factory=list)
    denied: list[Judged] = field(default_factory=list)
    note: str = ""
    title: str = ""

    def drop_objects(self) -> Replayed:
        """Keep what a report tells, and let go of the objects: a week of reviews need not fit into memory."""
        if self.request is not None:
            self.title = _title(self.request)
            self.request = self.request._replace(object=None, old=None)
        self.source = self.source._replace(value=None)
        return self

    @property
    def gained(self) -> list[str]:
        """Rules that change the object now and did not then."""
        before = self.then.changed if self.then is not None else ()
        return [change.rule for change in self.changes if change.rule not in before]

    @property
    def lost(self) -> list[str]:
        """Rules that changed the object then and do not now."""
        now = {change.rule for change in self.changes}
        return [rule for rule in self.then.changed if rule not in now] if self.then is not None else []


def read(paths: Iterable[str]) -> Iterator[RecordedReview]:
    """Every review that ``paths`` name: recordings by the line, other files by the document."""
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
        # Only what ends a line of JSON does so here: texts may hold other separators.
        for number, line in enumerate(source.text.split("\n"), start=1):
            if line.strip():
                yield _line(file, number, line)
    else:
        for one in unfolded(parse(file, source.text)):
            if isinstance(one, Document):
                yield RecordedReview(file, one.number, one.value)
            else:
                yield RecordedReview(file, one.number, None, one.problem)


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole JSON object, and another begins after it."""
    first, _, rest = text.lstrip().partition("\n")
    if not first.startswith("{") or not rest.lstrip().startswith("{"):
        return False
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return True


def _line(file: str, number: int, line: str) -> RecordedReview:
    try:
        return RecordedReview(file, number, orjson.loads(line))
    except orjson.JSONDecodeError as error:
        return RecordedReview(file, number, None, f"is no JSON: {str(error).partition(':')[0]}")


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
    then = _then(source.value.get(RECORDED))
    try:
        decision = _decide(request, then, policies, snapshot)
    except MalformedError as error:
        if then is None or then.allowed:
            raise
        return Replayed(source, AnswerChange.SAME, request, then, note=str(error))
    if decision is None:
        return Replayed(source, AnswerChange.SKIPPED, request, then, note="none of gpugate's business")
    denied = [one for one in decision.findings if one.severity is Severity.DENY]
    found = Replayed(source, AnswerChange.SAME, request, then, [] if denied else decision.changes, denied)
    found.effect = _effect(found)
    return found


def _title(request: Request) -> str:
    metadata = (request.object or {}).get("metadata")
    prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
    name = f"{prefix}*" if isinstance(prefix, str) and prefix else request.name or "without a name"
    kind = f"{request.kind}/{request.subresource}" if request.subresource else request.kind
    return f"{request.operation} {kind} {request.namespace}/{name}"


def _effect(found: Replayed) -> AnswerChange:
    allowed = found.then is None or found.then.allowed
    if allowed and found.denied:
        return AnswerChange.REFUSED
    if not allowed and not found.denied:
        return AnswerChange.FREED
    if found.gained:
        return AnswerChange.CHANGED
    return AnswerChange.UNCHANGED if allowed and found.lost else AnswerChange.SAME


def _decide(request: Request, then: RecordedAnswer | None, policies: PolicySet, snapshot: ClusterSnapshot) -> Decision | None:
    """What the door decides: the mutating one edits, the validating one checks what comes of that."""
    if then is None or then.endpoint != "validate":
        return _phase(request, policies, snapshot, Phase.REVIEW if then is None or not then.endpoint else Phase.MUTATE)
    edited = request._replace(object=clone(request.object))
    decision = _phase(request, policies, snapshot, Phase.CHECK)
    if decision is None or not decision.refused or not then.allowed or not _is_edited(request):
        return decision
    # What the policy would have changed before, had it been in force, is changed before the check.
    _phase(edited, policies, snapshot, Phase.MUTATE)
    return _phase(edited, policies, snapshot, Phase.CHECK)


def _is_edited(request: Request) -> bool:
    """Whether the mutating door is asked first."""
    kind = kind_of(request.api_version, request.kind)
    return request.operation == "CREATE" or not ((kind is not None and kind.is_pod) or request.subresource)


def _phase(request: Request, policies: PolicySet, snapshot: ClusterSnapshot, phase: Phase) -> Decision | None:
    workload = open_request(request, snapshot)
    if workload is None:
        return None
    bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
    return decide(workload, bound, snapshot, phase)


def _then(recorded: Any) -> RecordedAnswer | None:  # noqa: ANN401 - any JSON value
    if not isinstance(recorded, dict) or not isinstance(recorded.get("allowed"), bool):
        return None
    findings = recorded.get("findings")
    denied = [
        f"{one.get('rule')}/{one.get('reason')}"
        for one in (findings if isinstance(findings, list) else ())
        if isinstance(one, dict) and one.get("severity") == Severity.DENY.value
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
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
