"""Selectors, affinity and tolerations that let an object onto its pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.evidence.world import GPU, POOL, POOLS, SPOT_TAINT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.e2e.evidence.draft import Draft
    from tests.e2e.evidence.world import Pool

_GPU_TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
_SPOT_TOLERATION = {"key": SPOT_TAINT["key"], "operator": "Equal", "value": "true", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def place(rng: Random, draft: Draft, *, by_pool: bool = False) -> None:
    """Give the draft tolerations and selectors that let it onto its pool, and note what else they let it onto.

    ``by_pool`` has it select the pool by its own label.
    """
    pool = draft.pool
    tolerations = rng.choice(([], [_GPU_TOLERATION], [{"key": GPU, "operator": "Equal", "value": "present"}]))
    if pool.name == "spot":
        tolerations = rng.choice(([{"operator": "Exists"}], [*tolerations, _SPOT_TOLERATION]))
    if tolerations:
        draft.spec["tolerations"] = list(tolerations)
    by_label = (_by_pool, _by_terms, _not_others)
    others = (_anywhere, _by_product, _by_memory, _by_name)
    choose = rng.choice(by_label if by_pool else (*by_label, *others))
    fragment, allowed = choose(rng, pool, draft)
    draft.spec |= fragment
    draft.named = frozenset(allowed if choose in by_label else POOLS)
    draft.reach = frozenset(allowed if pool.name == "spot" else allowed - {"spot"})


def _affinity(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def _same_product(pool: Pool) -> set[str]:
    return {other.name for other in POOLS.values() if other.shape.product == pool.shape.product}


def _anywhere(_rng: Random, _pool: Pool, _draft: Draft) -> tuple[dict[str, Any], set[str]]:
    return {}, set(POOLS)


def _by_pool(_rng: Random, pool: Pool, _draft: Draft) -> tuple[dict[str, Any], set[str]]:
    return {"nodeSelector": {POOL: pool.name}}, {pool.name}


def _by_product(_rng: Random, pool: Pool, _draft: Draft) -> tuple[dict[str, Any], set[str]]:
    return {"nodeSelector": {"nvidia.com/gpu.product": pool.shape.product}}, _same_product(pool)


def _by_memory(rng: Random, pool: Pool, _draft: Draft) -> tuple[dict[str, Any], set[str]]:
    """More, or less, card memory than a bound beside that of the pool."""
    mine = pool.shape.gpu_memory_mib
    if rng.random() < 0.5:
        term = {"matchExpressions": [_expression("nvidia.com/gpu.memory", "Gt", str(mine - 1))]}
        return _affinity(term), {one.name for one in POOLS.values() if one.shape.gpu_memory_mib >= mine}
    term = {"matchExpressions": [_expression("nvidia.com/gpu.memory", "Lt", str(mine + 1))]}
    return _affinity(term), {one.name for one in POOLS.values() if one.shape.gpu_memory_mib <= mine}


def _by_terms(rng: Random, pool: Pool, _draft: Draft) -> tuple[dict[str, Any], set[str]]:
    """One term that no node meets, one that the pool does: one of them is enough."""
    never = {"matchExpressions": [_expression(POOL, "In", "nowhere"), _expression("nvidia.com/gpu.present", "Exists")]}
    mine = {"matchExpressions": [_expression(POOL, "In", pool.name, "nowhere"), _expression("evidence.e2e/gone", "DoesNotExist")]}
    terms = [never, mine]
    rng.shuffle(terms)
    return _affinity(*terms), {pool.name}


def _by_name(rng: Random, pool: Pool, draft: Draft) -> tuple[dict[str, Any], set[str]]:
    """One node, or those of the pool, by name."""
    names = pool.node_names()
    if draft.count == 1 and draft.kind in {"Pod", "Job"} and draft.topology is None:
        names = [rng.choice(names)]
    if rng.random() < 0.5 and len(names) == 1:
        return _affinity({"matchFields": [_expression("metadata.name", "In", *names)]}), {pool.name}
    return _affinity({"matchExpressions": [_expression("kubernetes.io/hostname", "In", *names)]}), {pool.name}


def _not_others(_rng: Random, pool: Pool, _draft: Draft) -> tuple[dict[str, Any], set[str]]:
    others = [name for name in POOLS if name != pool.name]
    term = {"matchExpressions": [_expression(POOL, "NotIn", *others), _expression(POOL, "Exists")]}
    return _affinity(term), {pool.name}
