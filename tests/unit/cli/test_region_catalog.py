"""Catalogs of plans: what is built in agrees with what would be computed; classes that manifests add to a cluster."""

import msgspec

from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.cli.inputs.assumed_nodeclasses import inherit_status
from spotwright.cli.inputs.builtin_catalog import load_builtin_catalog, make_default_catalog
from spotwright.cli.inputs.builtin_regions import load_region
from spotwright.cli.inputs.region_catalog import PlanCatalog, catalog_of_cluster
from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, SelectorTerm, Subnet
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import snapshot

SUBNETS = SelectorTerm(tags={"karpenter.sh/discovery": "main"})
APPLIED = EC2NodeClass(
    ObjectMeta("default"),
    subnet_selector_terms=(SUBNETS,),
    ami_selector_terms=(SelectorTerm(alias="al2023@latest"),),
    subnets=(Subnet("subnet-1", "us-east-1d", "use1-az9"),),
    amis=(AMI("ami-1", requirements=(NodeSelectorRequirement("kubernetes.io/arch", "In", ("amd64",)),)),),
)
GIVEN = msgspec.structs.replace(APPLIED, subnets=(), amis=())
FEW = Catalog({"default": load_builtin_catalog().instance_types("")[:3]}, source="catalogs/1")


def made(*nodeclasses: EC2NodeClass) -> PlanCatalog:
    merged = inherit_status(nodeclasses, [APPLIED])
    return catalog_of_cluster(snapshot(nodeclasses=merged), FEW, "main", [APPLIED], few_types)


def few_types() -> RegionFacts | None:
    region = load_region("us-east-1")
    return msgspec.structs.replace(region, types=tuple(info for info in region.types if info.name == "m5.large"))


def test_the_built_in_catalog_is_what_would_be_computed() -> None:
    assert load_builtin_catalog() == make_default_catalog()


def test_a_class_that_is_given_as_it_was_applied_has_the_types_of_the_clusters_catalog() -> None:
    catalog = made(GIVEN)
    assert catalog.catalog == FEW
    assert catalog.snapshot.nodeclasses == (APPLIED,)


def test_a_class_that_the_manifests_change_has_types_of_its_own_in_the_clusters_subnets() -> None:
    catalog = made(msgspec.structs.replace(GIVEN, kubelet={"maxPods": 7}))
    (instance_type,) = catalog.catalog.instance_types("default")
    assert instance_type.capacity[resources.PODS] == 7
    assert {offering.zone for offering in instance_type.offerings if offering.available} == {"us-east-1d"}
    assert not catalog.assumptions


def test_a_class_that_the_manifests_add_has_subnets_where_the_cluster_has_some() -> None:
    added = msgspec.structs.replace(GIVEN, metadata=ObjectMeta("added"), kubelet={"maxPods": 7})
    catalog = made(GIVEN, added)
    assert catalog.catalog.instance_types("default") == FEW.instance_types("default")
    (instance_type,) = catalog.catalog.instance_types("added")
    assert {offering.zone for offering in instance_type.offerings} == {"us-east-1d"}


def test_without_region_facts_a_changed_class_is_said_to_be_unknown() -> None:
    changed = snapshot(nodeclasses=(msgspec.structs.replace(APPLIED, kubelet={"maxPods": 7}),))
    catalog = catalog_of_cluster(changed, FEW, "main", [APPLIED], lambda: None)
    assert [note for note in catalog.notes if note.startswith("EC2NodeClass default: ")]
    assert catalog.catalog == FEW
