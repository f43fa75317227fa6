"""Check of EC2's quotas of vCPUs: whether the account may run what the NodePools may ask for."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spotwright.aws.instance_types.vcpu_quotas import STANDARD, VcpuQuota, increase_command, quota_family, vcpu_quota
from spotwright.model import labels, quantity
from spotwright.workflows.install.preflight.facts import Facts, NodePoolDemand, NotAsked, Target
from spotwright.workflows.install.preflight.verdict import Caution, NotChecked, Verdict, Works

# A new account has 5 to 32; with fewer than this a few nodes are all that may run.
FEW_VCPUS: Final = 64
# What is asked for where nothing says how much is needed.
_USUAL_VCPUS: Final = 256
_SHOWN_NODEPOOLS: Final = 3
# The labels by which a NodePool says which types it allows, the most exact one first.
_TYPE_KEYS: Final = (
    labels.INSTANCE_TYPE,
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-category",
)


def usual_quotas() -> tuple[VcpuQuota, ...]:
    """What most launches count against."""
    found = (vcpu_quota(kind, STANDARD) for kind in (labels.ON_DEMAND, labels.SPOT))
    return tuple(quota for quota in found if quota)


def nodepool_demand(nodepool: Mapping[str, Any]) -> NodePoolDemand:
    """What a NodePool, as the API server has it, may ask EC2 for."""
    spec = nodepool.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    requirements = template.get("requirements") or ()
    kinds = _chosen(requirements, labels.CAPACITY_TYPE, (labels.ON_DEMAND, labels.SPOT)) or {labels.ON_DEMAND}
    families = {quota_family(name) for name in _names_of_types(requirements)} or {STANDARD}
    quotas = {vcpu_quota(kind, family) for kind in kinds for family in families}
    limit = (spec.get("limits") or {}).get("cpu")
    vcpus = None if limit is None else quantity.amount("cpu", limit) // 1000
    return NodePoolDemand(nodepool["metadata"]["name"], tuple(sorted(quota for quota in quotas if quota)), vcpus)


def _names_of_types(requirements: Iterable[Mapping[str, Any]]) -> set[str]:
    """Types, families or categories that requirements choose from; empty where they choose none."""
    chosen = (_chosen(requirements, key) for key in _TYPE_KEYS)
    return next((names for names in chosen if names), set())


def _chosen(requirements: Iterable[Mapping[str, Any]], key: str, known: tuple[str, ...] = ()) -> set[str]:
    """Values that all requirements on a key allow, of those they name or of ``known``."""
    stated = [requirement for requirement in requirements if requirement.get("key") == key]
    named = [{*(requirement.get("values") or ())} for requirement in stated if requirement.get("operator") == "In"]
    excluded = {
        value
        for requirement in stated
        if requirement.get("operator") == "NotIn"
        for value in requirement.get("values") or ()
    }
    allowed = set.intersection(*named) if named else {*known} if stated else set()
    left = allowed - excluded
    return left & {*known} if known else left


def check_vcpu_quotas(target: Target, facts: Facts) -> Verdict:
    """A launch beyond a quota is refused by EC2, type by type; the pods wait."""
    if isinstance(facts.vcpu_quotas, NotAsked):
        return NotChecked(facts.vcpu_quotas.reason)
    nodepools = () if isinstance(facts.nodepools, NotAsked) else facts.nodepools
    quotas = sorted({quota for pool in nodepools for quota in pool.quotas}) or usual_quotas()
    known = [(quota, facts.vcpu_quotas[quota.code]) for quota in quotas if quota.code in facts.vcpu_quotas]
    if not known:
        names = ", ".join(f"{quota.code} ({quota.name})" for quota in quotas)
        return NotChecked(f"Service Quotas has no value of {names} in {target.region}")
    if said := list(_small_quotas(target, known, nodepools)):
        return Caution("; ".join(said))
    return Works(", ".join(f"{vcpus} vCPUs of {quota.name} instances" for quota, vcpus in known))


def _small_quotas(
    target: Target, known: Iterable[tuple[VcpuQuota, int]], nodepools: tuple[NodePoolDemand, ...]
) -> Iterator[str]:
    for quota, vcpus in known:
        pools = [pool for pool in nodepools if quota in pool.quotas]
        limits = [pool.vcpus for pool in pools if pool.vcpus is not None]
        limited = len(limits) == len(pools) > 0
        wanted = sum(limits) if limited else max(FEW_VCPUS, sum(limits))
        if vcpus >= wanted:
            continue
        names = _named([pool.name for pool in pools])
        why = f", and {names} may ask for {sum(limits) if limits and sum(limits) > vcpus else 'more'}" if pools else ""
        command = increase_command(quota.code, str(max(wanted, sum(limits)) if limited else max(wanted, _USUAL_VCPUS)))
        yield (
            f"EC2 lets the account run {vcpus} vCPUs of {quota.name} instances (quota {quota.code}){why}: {command}"
            f" --region {target.region}"
        )


def _named(names: list[str]) -> str:
    """NodePools by name, the first few."""
    more = f" and {len(names) - _SHOWN_NODEPOOLS} more" if len(names) > _SHOWN_NODEPOOLS else ""
    return f"NodePool{'s' if len(names) > 1 else ''} {', '.join(names[:_SHOWN_NODEPOOLS])}{more}"
