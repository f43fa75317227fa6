"""What the dry run of a class asks EC2 about."""

import pytest

from spotwright.aws.images import families
from spotwright.aws.launch import dry_run
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from tests.unit.aws.samples import FACTS, ZONES, nodeclass, types, zones_of

POOL = NodePool(ObjectMeta("default"), NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"))


def asked_zones(*names: str) -> set[str]:
    """The zones of the dry run of a class whose NodePool may buy these types."""
    node_class = nodeclass()
    family = families.ami_family(node_class)
    target = dry_run.dry_run_target(node_class, [POOL], types(*names) if names else ())
    assert isinstance(family, families.AMIFamily)
    plan = dry_run.plan_dry_run(node_class, target, FACTS, family)
    assert isinstance(plan, FleetPlan)
    return {override.zone for override in plan.overrides}


def test_a_type_is_asked_for_where_it_is_sold() -> None:
    """EC2 refuses it elsewhere, which says nothing of the class."""
    sold = set(zones_of()["c7i-flex.large"]) & set(ZONES)
    assert sold < set(ZONES)
    assert asked_zones("c7i-flex.large") == sold


@pytest.mark.parametrize(
    ("group", "kind"), [("karpenter.azure.com", "EC2NodeClass"), ("karpenter.k8s.aws", "AKSNodeClass")]
)
def test_nodepools_of_a_class_of_another_kind_do_not_say_what_is_asked_for(group: str, kind: str) -> None:
    node_class = nodeclass()
    dedicated = NodeSelectorRequirement(labels.TENANCY, Operator.IN, ("dedicated",))
    foreign = NodePool(
        ObjectMeta("foreign"), NodeClassReference(group, kind, node_class.name), requirements=(dedicated,)
    )
    expected = dry_run.dry_run_target(node_class, [POOL], types("m5.large"))
    assert not expected.dedicated
    assert dry_run.dry_run_target(node_class, [POOL, foreign], types("m5.large")) == expected


def test_while_no_type_is_known_every_zone_is_asked_for() -> None:
    assert asked_zones() == set(ZONES)
