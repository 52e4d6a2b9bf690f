"""An audit as JSON: names that stay, and everything that the records have."""

from __future__ import annotations

import dataclasses

import orjson

from gpugate.webhook.audit.output.json import as_json
from tests.shared import sample_audits
from tests.shared.sample_audits import HOSTILE, item, workload

ITEM = ["rule", "policy", "mode", "effect", "rehearsed", "reason", "path", "message", "remedy"]
EXEMPTION = ["rules", "reason", "owner", "until", "state"]
NODE = ["name", "devices", "held", "idle", "stranded", "memory", "requested", "limited", "cpu", "cpuRequested"]


def test_the_fields_are_the_documented_ones() -> None:
    found = orjson.loads(as_json(sample_audits.realistic()))
    assert list(found) == [
        "apiVersion", "kind", "at", "source", "policies", "workloads", "askedFor", "shapes", "gangs", "queues", "quotas", "remarks",
        "usage",
    ]  # fmt: skip
    assert (found["apiVersion"], found["kind"]) == ("gpugate.io/v1alpha1", "Audit")
    fields = {
        "policies": "name generation priority modes problem",
        "workloads": "apiVersion kind namespace name uid team queue pods devices inGit policies outcome items exemption"
        " belongsTo deviceHours",
        "askedFor": "what value workloads devices hoursSoFar withoutStart hoursUntilEnd withoutEnd",
        "shapes": "title device whyStranded nodes",
        "gangs": "namespace kind name uid system size running pending missing failed held state since reason",
        "queues": "queue cohort flavor resource nominal reserved pending stopped",
        "quotas": "namespace name resource hard used",
    }
    for field, names in fields.items():
        assert all(list(one) == names.split() for one in found[field]), field
    said = [one for line in found["workloads"] for one in line["items"]]
    assert all(list(one) == ITEM for one in said)
    pleas = [one["exemption"] for one in found["workloads"] if one["exemption"]]
    assert [list(one) for one in pleas] == 4 * [EXEMPTION]
    nodes = found["shapes"][0]["nodes"]
    assert list(nodes[0]) == NODE


def test_the_values_are_those_of_the_records() -> None:
    audit = sample_audits.realistic()
    found = orjson.loads(as_json(audit))
    assert [one["name"] for one in found["workloads"]] == [one.name for one in audit.workloads]
    assert [one["outcome"] for one in found["workloads"]] == [one.outcome for one in audit.workloads]
    assert [len(one["items"]) for one in found["workloads"]] == [len(one.items) for one in audit.workloads]
    assert found["gangs"][1]["since"] == "2026-03-02T05:10:00Z"
    assert found["gangs"][-1]["since"] is None
    one = dataclasses.replace(audit, workloads=(workload("w", item(0), devices=8),))
    assert orjson.loads(as_json(one))["workloads"][0]["items"] == [
        {
            "rule": "host-memory",
            "policy": "gpu-default@7",
            "mode": "DryRun",
            "effect": "refuse",
            "rehearsed": True,
            "reason": "Overcommit",
            "path": "spec.template.spec.containers[0].resources.limits.memory",
            "message": "limit 1536Gi / request 256Gi = 6, above the ratio of 2 that the policy allows",
            "remedy": "Write resources.requests.memory: 768Gi or more, or lower the limit.",
        }
    ]


def test_the_same_audit_gives_the_same_bytes_and_half_a_character_does_no_harm() -> None:
    for audit in (sample_audits.realistic(), sample_audits.empty(), sample_audits.hostile()):
        assert as_json(audit) == as_json(audit)
        assert as_json(audit).endswith(b"}\n")
    assert orjson.loads(as_json(sample_audits.hostile()))["at"] == HOSTILE.replace("\ud800", "?")
