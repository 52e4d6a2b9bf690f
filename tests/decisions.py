"""Compare what two versions of gpugate decide: ``python -m tests.decisions cases|dump|compare``.

A change that is to leave decisions alone is checked in three steps::

    python -m tests.decisions cases /tmp/cases.gz                 # on the version before
    python -m tests.decisions dump /tmp/cases.gz /tmp/before.gz   # on the version before
    python -m tests.decisions dump /tmp/cases.gz /tmp/after.gz    # on the version after
    python -m tests.decisions compare /tmp/before.gz /tmp/after.gz

``cases`` writes all golden cases, all examples, and random workloads with random policies, clusters and updates, as plain JSON
that does not depend on names in the source. ``dump`` decides each and writes one line a case. Messages and remedies are left out
unless ``--texts`` is given.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.engine.engine import decide
from gpugate.policies.framework.decision import Decision, Phase
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from tests.shared import cases as golden
from tests.shared import shapes, strategies
from tests.shared.paths import ROOT

Object = dict[str, Any]
_SEED = 20260101


def main() -> int:
    """Run one of the three commands; 1 where ``compare`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.decisions", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("cases", help="write the cases")
    write.add_argument("file", type=Path)
    write.add_argument("--random", type=int, default=10_000, help="how many random workloads (default 10000)")
    dump = commands.add_parser("dump", help="decide the cases and write the decisions")
    dump.add_argument("cases", type=Path)
    dump.add_argument("file", type=Path)
    dump.add_argument("--texts", action="store_true", help="with messages, remedies and notes")
    compare = commands.add_parser("compare", help="show the decisions that differ")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "cases":
        return _write(options.file, [*_golden_cases(), *_examples(), *_random_cases(options.random)])
    if options.command == "dump":
        return _write(options.file, (decided(case, texts=options.texts) for case in _read(options.cases)))
    return _compare(options.before, options.after)


def _write(file: Path, lines: Any) -> int:
    count = 0
    with gzip.open(file, "wb", compresslevel=3) as out:
        for line in lines:
            out.write(orjson.dumps(line, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS) + b"\n")
            count += 1
    print(f"{count} lines in {file}")
    return 0


def _read(file: Path) -> Iterator[Object]:
    with gzip.open(file, "rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def _golden_cases() -> Iterator[Object]:
    for case in golden.all_cases():
        content = case.content
        named = content.get("facts") or []
        objects = golden.cluster(named) if isinstance(named, str) else named
        mode = content.get("mode", "Enforce")
        spec: Object = {"exemptions": {"rules": content.get("exemptions", [])}}
        spec["rules"] = {case.rule: {"mode": mode, **(content.get("params") or {})}}
        if not content.get("only", True):
            spec["mode"] = mode
        yield {
            "name": f"golden {case}",
            "root": content["given"],
            "old": content.get("old"),
            "subresource": content.get("subresource", ""),
            "policy": {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "golden"}, "spec": spec},
            "cluster": [objects, dict.fromkeys(content.get("pending") or (), "PENDING")],
        }


def _documents(path: Path) -> list[Any]:
    return [one for one in YAML(typ="safe").load_all(path.read_text(encoding="utf-8")) if one]


def _examples() -> Iterator[Object]:
    policy, cluster = _documents(ROOT / "examples/policy.yaml")[0], _documents(ROOT / "examples/cluster.yaml")
    objects = [item for one in cluster for item in (one.get("items") or [one])]
    everything = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "all"}, "spec": {"mode": "Enforce"}}
    for path in sorted((ROOT / "examples/workloads").glob("*.yaml")):
        for number, root in enumerate(_documents(path)):
            if kind_of(str(root.get("apiVersion")), str(root.get("kind"))) is None:
                continue
            for which, bound in (("example", policy), ("all rules", everything)):
                for known in (None, [objects, {}]):
                    name = f"{which} {path.name}#{number} {'with' if known else 'without'} a cluster"
                    yield {"name": name, "root": root, "old": None, "subresource": "", "policy": bound, "cluster": known}


def _random_cases(count: int) -> list[Object]:
    """Random workloads: created, damaged, and updated in the ways in which people and controllers update them."""
    made: list[Object] = []
    quiet = settings(
        max_examples=count, deadline=None, database=None, phases=[Stage.generate], suppress_health_check=list(HealthCheck)
    )

    @seed(_SEED)
    @quiet
    @given(_cases())
    def collect(case: Object) -> None:
        made.append(orjson.loads(orjson.dumps({**case, "name": f"{case['name']} {len(made)}"})))

    collect()
    return made[:count]


@st.composite
def _cases(draw: st.DrawFn) -> Object:
    policy, cluster = draw(strategies.policies()), draw(strategies.cluster_objects())
    known = None if cluster is None else [clone(cluster[0]), {key: value.name for key, value in cluster[1].items()}]
    case: Object = {"policy": clone(policy), "cluster": known, "subresource": "", "old": None}
    sort = draw(st.sampled_from(["created", "created", "updated", "sent again", "damaged"]))
    if sort == "damaged":
        kind = draw(st.sampled_from([*shapes.KINDS, "Pod", "Job", "CronJob", "Deployment"]))
        return case | {"name": sort, "root": draw(strategies.damaged(strategies.workloads(kind)))}
    git = draw(strategies.workloads())
    if sort == "created":
        return case | {"name": sort, "root": git}
    live = clone(git)
    _settled(live, draw(strategies.policies()), known)
    root = clone(git if sort == "sent again" else live)
    _tweak(root, random.Random(draw(st.integers(0, 2**32))))  # noqa: S311 - no secret
    subresource = draw(st.sampled_from([*[""] * 30, "resize", "ephemeralcontainers"]))
    return case | {"name": sort, "root": root, "old": live, "subresource": subresource}


def _settled(root: Object, policy: Object, cluster: Any) -> None:
    """Change ``root`` as the webhook does when it is created."""
    try:
        _decide({"root": root, "old": None, "subresource": "", "policy": policy, "cluster": cluster}, root, Phase.MUTATE)
    except MalformedError:
        return


def _places(value: Any, wanted: frozenset[str]) -> Iterator[tuple[Object, str]]:
    children: Any = ()
    if isinstance(value, dict):
        for key in value:
            if key in wanted:
                yield value, key
        children = value.values()
    elif isinstance(value, list):
        children = value
    for child in children:
        yield from _places(child, wanted)


def _tweak(root: Object, dice: random.Random) -> None:
    """Change ``root`` in some of the ways in which updates change objects."""
    for _ in range(dice.choice([0, 1, 1, 2])):
        dice.choice(_TWEAKS)(root, dice)


def _labelled(root: Object, dice: random.Random) -> None:
    added = dice.choice([{"seen": "yes"}, {"kueue.x-k8s.io/queue-name": dice.choice(["a", "b", "q"])}])
    root["metadata"]["labels"] = {**(root["metadata"].get("labels") or {}), **added}


def _annotated(root: Object, dice: random.Random) -> None:
    key, value = dice.choice([("gpugate.io/gpu", "h100"), ("gpugate.io/gang-size", "4"), ("gpugate.io/spot", "required")])
    root["metadata"]["annotations"] = {**(root["metadata"].get("annotations") or {}), key: value}


def _suspended(root: Object, _dice: random.Random) -> None:
    for parent, key in list(_places(root.get("spec"), frozenset({"suspend"}))):
        parent[key] = not parent[key]


def _scaled(root: Object, dice: random.Random) -> None:
    _tweak_one(root, {"replicas", "parallelism", "numNodes", "size"}, dice, [0, 1, 2, 4, 8])


def _with_other_image(root: Object, dice: random.Random) -> None:
    _tweak_one(root, {"image"}, dice, ["example.com/other:2"])


def _with_other_resources(root: Object, dice: random.Random) -> None:
    _tweak_one(root, {"memory"}, dice, ["1Gi", "64Gi", "1500Gi"])
    _tweak_one(root, {"nvidia.com/gpu"}, dice, [1, 2, 8])


def _without_a_field(root: Object, dice: random.Random) -> None:
    wanted = frozenset({"tolerations", "limits", "requests", "volumes", "env", "affinity"})
    found = list(_places(root.get("spec"), wanted))
    if found:
        parent, key = dice.choice(found)
        del parent[key]


def _running(root: Object, _dice: random.Random) -> None:
    root["status"] = {"phase": "Running", "active": 1}


_TWEAKS = (
    *(_labelled, _annotated, _suspended, _scaled),
    *(_with_other_image, _with_other_resources, _without_a_field, _running),
)


def _tweak_one(root: Object, keys: set[str], dice: random.Random, values: list[Any]) -> None:
    found = list(_places(root.get("spec"), frozenset(keys)))
    if found:
        parent, key = dice.choice(found)
        parent[key] = dice.choice(values)


def _facts_of(cluster: Any) -> ClusterSnapshot:
    if cluster is None:
        return EMPTY_SNAPSHOT
    objects, known = cluster
    return snapshot_from_objects(clone(objects), {key: SyncState[value] for key, value in known.items()})


def _decide(case: Object, root: Object, phase: Phase) -> Decision:
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    snapshot = _facts_of(case["cluster"])
    bound = PolicySet([parse_policy(case["policy"])]).bind({}, {})
    operation = "CREATE" if case["old"] is None else "UPDATE"
    workload = open_workload(
        kind, root, snapshot, operation=operation, old=clone(case["old"]), subresource=case.get("subresource", "")
    )
    return decide(workload, bound, snapshot, phase)


def decided(case: Object, *, texts: bool = False) -> Object:
    """What is decided of ``case`` in a review, and by the validating webhook on the object as it was sent."""
    found: Object = {"name": case["name"]}
    for phase in (Phase.REVIEW, Phase.CHECK):
        root = clone(case["root"])
        try:
            decision = _decide(case, root, phase)
        except MalformedError as error:
            found[phase.name or ""] = {"malformed": [str(part) for part in error.path]}
            continue
        found[phase.name or ""] = _shown(decision, texts=texts)
    return found


def _shown(decision: Decision, *, texts: bool) -> Object:
    def findings() -> Iterator[Object]:
        for one in decision.findings:
            finding = one.finding
            shown: Object = {
                "rule": one.rule,
                "severity": one.severity.value,
                "reason": finding.reason,
                "path": list(finding.path),
                "level": finding.level.value,
                "measure": str(finding.measure),
                "rests_on": list(finding.rests_on),
                "would_refuse": one.would_refuse,
            }
            if texts:
                shown |= {"message": finding.message, "remedy": finding.remedy}
            yield shown

    listed = sorted(findings(), key=orjson.dumps)
    return {
        "patch": decision.patch,
        "changes": [[one.rule, list(one.notes) if texts else []] for one in decision.changes],
        "would_change": [[one.rule, list(one.notes) if texts else []] for one in decision.would_change],
        "findings": listed,
        "failures": [[one.rule, repr(one.error)] for one in decision.failures],
    }


def _compare(before: Path, after: Path) -> int:
    first = {one["name"]: one for one in _read(before)}
    second = {one["name"]: one for one in _read(after)}
    differing = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    for name in differing[:20]:
        print(f"--- {name}")
        one, other = first.get(name) or {}, second.get(name) or {}
        for phase in ("REVIEW", "CHECK"):
            one_phase, other_phase = one.get(phase) or {}, other.get(phase) or {}
            for part in sorted({*one_phase, *other_phase}):
                if one_phase.get(part) != other_phase.get(part):
                    print(f"  {phase} {part}\n    before {one_phase.get(part)}\n    after  {other_phase.get(part)}")
    print(f"{len(differing)} of {len(first)} decisions differ")
    return 1 if differing or len(first) != len(second) else 0


if __name__ == "__main__":
    sys.exit(main())
