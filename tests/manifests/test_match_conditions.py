"""The matchConditions: cheap for any object, since above the apiserver's limits a webhook that fails open is not called."""

from __future__ import annotations

import math
import re

import pytest

from gpugate.policies.kube.accelerators import LOOKS_LIKE
from gpugate.policies.kube.taints import MARKING_WORDS
from gpugate.policies.workloads.device_access import DEVICE_ANNOTATIONS, DEVICE_FILES, DEVICE_LIST
from gpugate.webhook.admission import conditions
from tests.manifests.installation import the

#: The cost of one expression and of all conditions of a webhook (Kubernetes 1.36, apiserver/pkg/apis/cel/config.go).
OF_ONE, OF_ALL = 1_000_000, 2_500_000
#: The longest key of a label or an annotation, and the longest value of a toleration, that the apiserver accepts. Characters.
KEY, VALUE = 317, 63
#: More than a turn of a loop costs beside the functions on texts that it calls.
TURN = 50
#: Lists and maps of which the apiserver bounds the length: the containers of both objects, and the amounts of one container.
BOUNDED = {"[spec.?containers, spec.?initContainers]", "[container.?resources.?limits, container.?resources.?requests]"}

EXPRESSIONS = {
    f"{webhook['name']} {condition['name']}": re.sub(r"\s+", " ", condition["expression"])
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for webhook in the(kind)["webhooks"]
    for condition in webhook["matchConditions"]
}
EACH = pytest.mark.parametrize("name", EXPRESSIONS)
PLACE = r"[\w.?]+(?:\.orValue\((?:\[\]|\{\}|'')\))?(?:\[\?x\])?[\w.?]*"


@EACH
def test_the_entries_of_a_list_are_counted_before_one_is_looked_at(name: str) -> None:
    expression = EXPRESSIONS[name]
    for walk in re.finditer(rf"(?<![\w.?)\]])({PLACE})\s?\.(?:exists|map)\(", expression):
        place = walk[1].partition(".orValue")[0]
        # Lists that the expression itself made, of what it has counted.
        if place in {"all", "specs", "lists"}:
            continue
        leaf = place.rpartition(".")[2]
        counts = [found.start() for found in re.finditer(rf"{re.escape(leaf)}\.orValue\((?:\[\]|\{{\}})\)\.size\(\)", expression)]
        if place == "list":
            counts = [found.start() for found in re.finditer(r"ontainers\.orValue|list\.orValue\(\[\]\)\.size\(\)", expression)]
        if place == "amounts":
            counts = [expression.find("?limits.orValue({}).size()")]
        assert counts, (name, place)
        assert -1 < counts[0] < walk.start(), (name, place)


@EACH
def test_the_characters_of_a_text_are_counted_before_it_is_searched(name: str) -> None:
    expression = EXPRESSIONS[name]
    for search in re.finditer(rf"({PLACE})\.(?:matches|contains|startsWith|endsWith)\(", expression):
        text = search[1]
        # The apiserver bounds the keys of annotations; a key of a label is counted before it becomes a `text`.
        if text == "text" or (text == "key" and f"key.startsWith('{DEVICE_ANNOTATIONS}')" in expression[search.start() :][:40]):
            continue
        assert f"{text}.size() > " in expression[: search.start()], (name, text)


def characters(length: int) -> int:
    """The cost of reading a text once (cel-go 0.26, interpreter/runtimecost.go)."""
    return math.ceil((length + 1) / 10)


def matching(length: int, pattern: str) -> int:
    return characters(length) * math.ceil(len(pattern) / 4)


def test_the_dearest_object_within_the_bounds_costs_less_than_the_apiserver_allows() -> None:
    asks = (
        conditions.RESOURCE_NAMES * (matching(conditions.NAME, f"(?i){LOOKS_LIKE}") + 2 * characters(conditions.NAME) + TURN)
        + conditions.CONTAINERS * 3 * TURN
        + conditions.POD_SETS * 3 * TURN
        + conditions.COMPONENTS * 60 * TURN
    )
    label = matching(conditions.NAME, MARKING_WORDS) + 2 * characters(conditions.NAME) + TURN
    gets = (
        conditions.ENTRIES * (characters(conditions.PATH) * characters(len(DEVICE_LIST)) + TURN)
        + conditions.CONTAINERS * 3 * TURN
        + conditions.VOLUMES * (matching(conditions.PATH, DEVICE_FILES) + TURN)
        + conditions.ANNOTATIONS * (characters(KEY) + TURN)
        + conditions.TERMS * (label + matching(VALUE, MARKING_WORDS))
        + conditions.LABELS * label
        + conditions.TERMS * (label + TURN)
        + conditions.OWNERS * TURN
    )
    # Both objects of an UPDATE may have as much.
    assert 2 * asks < OF_ONE
    assert gets < OF_ONE
    assert 2 * asks + gets + 100 < OF_ALL
