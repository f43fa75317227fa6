"""Labels, capacity and allocatable of instance types, against Karpenter's published reference."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spotwright.aws.images import families
from spotwright.aws.instance_types import capacity, compatibility, offerings, type_labels
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.cli.inputs.builtin_regions import DEFAULT_REGION, load_region
from spotwright.model import labels, resources
from spotwright.model.karpenter.nodeclass import (
    BlockDeviceMapping,
    ConnectionTracking,
    CPUOptions,
    EC2NodeClass,
    NetworkInterface,
    PlacementGroup,
)
from spotwright.model.requirements import Requirement
from tests.unit.aws.samples import ec2_says, nodeclass, region, type_of

REFERENCE = json.loads((Path(__file__).parent / "reference_types.json").read_text())
MIB = 2**20

NOT_IN_REFERENCE = {
    labels.REGION,
    labels.ZONE,
    labels.CAPACITY_TYPE,
    type_labels.NITRO_SANDBOX_LABEL,
    labels.INSTANCE_PREFIX + "tenancy",
}
HYPERVISOR = labels.INSTANCE_PREFIX + "hypervisor"


@cache
def published() -> dict[str, InstanceTypeInfo]:
    """Every type as the published reference has it, which is what comes with the command line."""
    return {info.name: info for info in load_region(DEFAULT_REGION).types}


def sized(
    name: str, family: str = "AL2023", overheads: capacity.Overheads | None = None, **changes: Any
) -> capacity.NodeResources:
    chosen = families.FAMILIES[family]
    return capacity.node_resources(type_of(name), nodeclass(**changes), chosen, overheads or capacity.Overheads())


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_type_has_the_labels_of_the_reference(name: str) -> None:
    expected = {key.replace("~", labels.INSTANCE_PREFIX): value for key, value in REFERENCE[name]["labels"].items()}
    requirements = type_labels.type_requirements(
        published()[name], region="r", zones=("z",), capacity_types=("spot",)
    ).labels()
    assert {key: value for key, value in requirements.items() if key not in NOT_IN_REFERENCE} == {
        key: value for key, value in expected.items() if value or key == HYPERVISOR
    }


def test_bare_metal_has_a_hypervisor_without_a_name() -> None:
    """Pods that want any hypervisor label get such a node, those that want none do not, as with Karpenter."""
    stated = type_labels.type_requirements(published()["c6g.metal"], region="r", zones=("z",), capacity_types=("spot",))
    assert stated.get(HYPERVISOR) == Requirement(HYPERVISOR, False, frozenset(("",)))


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_type_has_the_allocatable_of_the_reference(name: str) -> None:
    size = capacity.node_resources(published()[name], nodeclass(), families.FAMILIES["AL2023"], capacity.Overheads())
    assert size.allocatable == resources.parse(REFERENCE[name]["resources"])


def test_the_types_that_come_with_spotwright_are_those_of_the_reference_and_newer_ones() -> None:
    """The rows here are every seventh of the published list, in its order."""
    newer = {"t8i", "r9g", "r9gd", "trn2u"}
    names = [name for name in sorted(published()) if name.split(".")[0] not in newer and name != "trn2.3xlarge"]
    assert len(names) == 1363
    assert names[::7] == sorted(REFERENCE)


def test_every_type_states_every_label() -> None:
    keys = {
        tuple(type_labels.type_requirements(type_of(name), region="r", zones=("z",), capacity_types=("spot",)).by_key)
        for name in ("t3.small", "g4dn.8xlarge", "inf1.xlarge", "m5.metal")
    }
    assert len(keys) == 1
    stated = set(keys.pop())
    well_known = {key for key in labels.WELL_KNOWN if key.startswith(labels.INSTANCE_PREFIX)}
    assert well_known <= stated


def test_figures_of_a_gpu_type() -> None:
    requirements = type_labels.type_requirements(
        type_of("g4dn.8xlarge"), region="r", zones=("z",), capacity_types=("spot",)
    ).labels()
    shown = {key.removeprefix(labels.INSTANCE_PREFIX): value for key, value in requirements.items()}
    assert {"gpu-name": "t4", "gpu-count": "1", "gpu-memory": "16384", "local-nvme": "900", "cpu": "32"}.items() <= (
        shown.items()
    )
    assert (shown["category"], shown["generation"], shown["ebs-bandwidth"]) == ("g", "4", "9500")


@pytest.mark.parametrize(("name", "flex"), [("m7i-flex.large", "true"), ("m7i.large", "false")])
def test_flex_is_told_from_the_family(name: str, flex: str) -> None:
    type_requirements = type_labels.type_requirements(
        type_of(name), region="r", zones=("z",), capacity_types=("spot",)
    ).labels()
    assert type_requirements[labels.INSTANCE_PREFIX + "capability-flex"] == flex


def test_observed_nodes_never_have_less_than_we_say() -> None:
    """Ceilings of real nodes: KiB of memory and millicores of cpu that a node of the type reported."""
    observed = {"t4g.small": (1408312, 1930), "t4g.medium": (3377496, None), "t4g.xlarge": (15136012, 3920)}
    for name, (kibibytes, millicores) in (observed | {"m5.large": (7220184, None)}).items():
        allocatable = sized(name).allocatable
        assert allocatable["memory"] <= kibibytes * 1024
        assert millicores is None or allocatable["cpu"] <= millicores


def test_kube_reserved_of_m5_xlarge() -> None:
    size = sized("m5.xlarge")
    assert size.capacity["cpu"] - size.allocatable["cpu"] == 80
    assert size.capacity["memory"] - size.allocatable["memory"] == (893 + 100) * MIB
    assert size.capacity["pods"] == 58


@pytest.mark.parametrize(
    ("kubelet", "threshold_mib"),
    [
        ({}, 100),
        ({"evictionHard": {"memory.available": "500Mi"}}, 500),
        ({"evictionSoft": {"memory.available": "50Mi"}}, 100),
        ({"evictionHard": {"memory.available": "1Gi"}, "evictionSoft": {"memory.available": "3Gi"}}, 1024),
        ({"evictionHard": {"memory.available": "100%"}}, 0),
    ],
)
def test_only_hard_eviction_takes_memory(kubelet: dict[str, object], threshold_mib: int) -> None:
    size = sized("m5.xlarge", kubelet=kubelet)
    assert size.capacity["memory"] - size.allocatable["memory"] == (893 + threshold_mib) * MIB


def test_an_eviction_percentage_is_of_the_capacity_rounded_up() -> None:
    size = sized("m5.xlarge", kubelet={"evictionHard": {"memory.available": "10%"}})
    assert size.capacity["memory"] - size.allocatable["memory"] == 893 * MIB + -(-size.capacity["memory"] // 10)


@pytest.mark.parametrize(
    ("family", "reserved_mib"), [("AL2023", 11 * 35 + 255), ("Custom", 11 * 35 + 255), ("Bottlerocket", 11 * 10 + 255)]
)
def test_max_pods_lowers_the_memory_overhead_only_where_the_image_counts_pods(family: str, reserved_mib: int) -> None:
    size = sized("t3.large", family, kubelet={"maxPods": 10})
    assert size.capacity["pods"] == 10
    assert size.capacity["memory"] - size.allocatable["memory"] == (reserved_mib + 100) * MIB


def test_reserved_interfaces_leave_no_pods_rather_than_a_negative_number() -> None:
    assert sized("t3.large", overheads=capacity.Overheads(reserved_enis=1_000_000)).capacity["pods"] == 0


@pytest.mark.parametrize(
    ("kubelet", "pods"),
    [({"podsPerCore": 4}, 16), ({"podsPerCore": 4, "maxPods": 20}, 16), ({"podsPerCore": 10, "maxPods": 20}, 20)],
)
def test_pods_per_core_lowers_the_density(kubelet: dict[str, object], pods: int) -> None:
    assert sized("m5.xlarge", kubelet=kubelet).capacity["pods"] == pods
    assert sized("m5.xlarge", "Bottlerocket", kubelet={"podsPerCore": 1}).capacity["pods"] == 58


def test_reserved_amounts_of_the_class_replace_and_add() -> None:
    reserved = {"kubeReserved": {"cpu": "200m"}, "systemReserved": {"cpu": "100m", "memory": "1Gi"}}
    size = sized("m5.xlarge", kubelet=reserved)
    assert size.capacity["cpu"] - size.allocatable["cpu"] == 300
    assert size.capacity["memory"] - size.allocatable["memory"] == (893 + 100 + 1024) * MIB


def test_an_expression_in_a_reserved_amount_is_left_aside() -> None:
    reserved = {"kubeReserved": {"cpu": "100m", "memory": "vcpus*10"}}
    size = sized("m5.xlarge", kubelet=reserved)
    assert size.capacity["cpu"] - size.allocatable["cpu"] == 100
    assert size.capacity["memory"] - size.allocatable["memory"] == (893 + 100) * MIB


CEL = capacity.Overheads(nodeclass_cel=True)


@pytest.mark.parametrize(
    ("name", "expression", "pods"),
    [("m5.large", "((default_enis-1)*(ips_per_eni-1))+2", 20), ("m5.4xlarge", "max(60, vcpus*30)", 480)],
)
def test_max_pods_may_be_an_expression_where_the_gate_is_on(name: str, expression: str, pods: int) -> None:
    kubelet = {"maxPods": expression}
    assert sized(name, overheads=CEL, kubelet=kubelet).capacity["pods"] == pods
    assert sized(name, kubelet=kubelet).capacity["pods"] == sized(name).capacity["pods"]


@pytest.mark.parametrize(
    ("kubelet", "resource", "rendered"),
    [
        ({"kubeReserved": {"cpu": "70 + vcpus"}}, "cpu", "80m"),
        ({"kubeReserved": {"memory": "memory_mib/200"}}, "memory", "96Mi"),
        ({"kubeReserved": {"memory": "memory_mib/128"}}, "memory", "128Mi"),
        ({"maxPods": 20, "kubeReserved": {"memory": "max_pods*11"}}, "memory", "224Mi"),
        ({"kubeReserved": {"ephemeral-storage": "1 + 1"}}, "ephemeral-storage", "2Gi"),
        ({"kubeReserved": {"cpu": "vcpus - vcpus"}}, "cpu", "0m"),
        ({"kubeReserved": {"cpu": "vcpus - 100"}}, "cpu", None),
        ({"kubeReserved": {"cpu": "vcpus / 0"}}, "cpu", None),
    ],
)
def test_a_reserved_amount_may_be_an_expression(kubelet: dict[str, object], resource: str, rendered: str) -> None:
    size = sized("m5.xlarge", overheads=CEL, kubelet=kubelet)
    assert size.kubelet["kubeReserved"].get(resource) == rendered
    plain = sized("m5.xlarge").kube_reserved[resource]
    assert size.kube_reserved[resource] == (
        plain if rendered is None else resources.parse({resource: rendered})[resource]
    )


@pytest.mark.parametrize("expression", ["vcpus - 100", "vcpus * 10000000000", "vcpus +", "pods"])
def test_a_max_pods_without_a_usable_value_says_so(expression: str) -> None:
    of = nodeclass(kubelet={"maxPods": expression})
    (sentence,) = capacity.expression_errors(type_of("m5.large"), of, families.FAMILIES["AL2023"], CEL)
    assert sentence.startswith("spec.kubelet.maxPods for m5.large: ")
    assert capacity.expression_errors(type_of("m5.large"), nodeclass(), families.FAMILIES["AL2023"], CEL) == ()


def test_memory_that_nodes_were_seen_to_have_replaces_the_estimate() -> None:
    size = capacity.node_resources(
        type_of("m5.large"), nodeclass(), families.FAMILIES["AL2023"], capacity.Overheads(), 7 * GIB
    )
    assert size.capacity["memory"] == 7 * GIB
    assert size.allocatable["memory"] == 7 * GIB - (11 * 29 + 255 + 100) * MIB


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Custom"])
def test_max_pods_leaves_the_memory_overhead_of_these_families(family: str) -> None:
    assert sized("t3.large", family, kubelet={"maxPods": 10}).kube_reserved["memory"] == 640 * MIB


@pytest.mark.parametrize("family", ["Bottlerocket", "Windows2019", "Windows2022", "Windows2025"])
def test_max_pods_lowers_the_memory_overhead_of_these_families(family: str) -> None:
    size = sized("t3.large", family, kubelet={"maxPods": 10})
    assert (size.capacity["pods"], size.kube_reserved["memory"]) == (10, 365 * MIB)


@pytest.mark.parametrize("family", families.WINDOWS_BUILDS)
def test_windows_has_addresses_of_its_own_and_no_eni_density(family: str) -> None:
    size = sized("m5.large", family)
    assert size.capacity["pods"] == 110
    assert size.capacity["vpc.amazonaws.com/PrivateIPv4Address"] == 9
    assert size.capacity["ephemeral-storage"] == 50 * GIB
    offering_context = offerings.offering_context(nodeclass(ami_family=family), families.FAMILIES[family])
    instance_type = offerings.instance_type(
        type_of("m5.large"), region("m5.large"), offering_context, capacity.Overheads()
    ).requirements.labels()
    assert (instance_type[labels.OS], instance_type[labels.WINDOWS_BUILD]) == (
        "windows",
        families.WINDOWS_BUILDS[family],
    )


@pytest.mark.parametrize(("card", "pods"), [(0, 345), (1, 394)])
def test_an_efa_only_interface_takes_pods_from_the_first_card_alone(card: int, pods: int) -> None:
    interfaces = (NetworkInterface(0, 0), NetworkInterface(card, 1, "efa-only"))
    size = sized("m6idn.32xlarge", network_interfaces=interfaces)
    assert size.capacity["pods"] == pods
    assert size.capacity["vpc.amazonaws.com/efa"] == 1
    # The image sizes its reserve by the type, whatever its interfaces are for.
    assert size.kube_reserved["memory"] == (11 * 394 + 255) * MIB


GIB = 2**30


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("a1.large", {}, "first Graviton"),
        ("m5.large", {"network_interfaces": (NetworkInterface(0, 0), NetworkInterface(1, 1))}, "no network card 1"),
        ("m5.large", {"network_interfaces": (NetworkInterface(0, 0), NetworkInterface(0, 3))}, "no device 3"),
        ("m5.large", {"network_interfaces": (NetworkInterface(0, 0), NetworkInterface(0, 1, "efa-only"))}, "takes 0"),
        ("m4.large", {"network_interfaces": (NetworkInterface(0, 0),)}, "no ENA"),
        ("t2.large", {"connection_tracking": ConnectionTracking(udp_timeout=30)}, "only on Nitro"),
        ("m5.large", {"connection_tracking": ConnectionTracking(udp_timeout=30)}, ""),
        ("m5.large", {"cpu_options": CPUOptions("enabled")}, "nestedVirtualization"),
        ("m5.large", {"cpu_options": CPUOptions("disabled")}, ""),
        ("t3.large", {"placement_group": PlacementGroup("pg-1", "fast", "cluster")}, "into a cluster group"),
        ("t3.large", {"placement_group": PlacementGroup("pg-1", "wide", "spread")}, ""),
    ],
)
def test_what_a_type_cannot_do_for_a_class(name: str, changes: dict[str, Any], words: str) -> None:
    reasons = compatibility.incompatibilities(describe(name), nodeclass(**changes), families.FAMILIES["AL2023"])
    assert (words in reasons[0]) if words else not reasons


def describe(name: str) -> InstanceTypeInfo:
    return published()[name]


@pytest.mark.parametrize(
    ("family", "changes", "size_bytes"),
    [
        ("AL2023", {}, 20 * GIB),
        ("Bottlerocket", {}, 20 * GIB),
        ("AL2023", {"block_device_mappings": (BlockDeviceMapping("/dev/xvda", volume_size="100Gi"),)}, 100 * GIB),
        ("AL2023", {"block_device_mappings": (BlockDeviceMapping("/dev/xvdb", volume_size="100Gi"),)}, 20 * GIB),
        (
            "AL2023",
            {
                "block_device_mappings": (
                    BlockDeviceMapping("/dev/xvda", volume_size="9Gi"),
                    BlockDeviceMapping("/dev/b", True, "30Gi"),
                )
            },
            30 * GIB,
        ),
        (
            "Custom",
            {
                "block_device_mappings": (
                    BlockDeviceMapping("/dev/xvda", volume_size="20G"),
                    BlockDeviceMapping("/dev/b", volume_size="40G"),
                )
            },
            40 * 10**9,
        ),
        ("Custom", {}, 20 * GIB),
        ("AL2023", {"instance_store_policy": "RAID0"}, 7600 * 10**9),
    ],
)
def test_ephemeral_storage_is_the_disk_that_pods_write_to(
    family: str, changes: dict[str, Any], size_bytes: int
) -> None:
    assert sized("m6idn.32xlarge", family, **changes).capacity["ephemeral-storage"] == size_bytes


def test_accelerators_are_resources() -> None:
    p5 = sized("p5.48xlarge")
    assert (p5.allocatable["nvidia.com/gpu"], p5.allocatable["vpc.amazonaws.com/efa"]) == (8, 32)
    assert (p5.allocatable["cpu"], p5.allocatable["memory"] // MIB, p5.allocatable["pods"]) == (191450, 1938410, 100)
    inf2 = sized("inf2.24xlarge").capacity
    assert (inf2["aws.amazon.com/neuron"], inf2["aws.amazon.com/neuroncore"]) == (6, 12)


def test_every_type_that_ec2_has_can_be_sized() -> None:
    plain = EC2NodeClass(nodeclass().metadata)
    for name in ec2_says():
        size = capacity.node_resources(type_of(name), plain, families.FAMILIES["AL2023"], capacity.Overheads())
        assert all(0 <= size.allocatable[key] <= size.capacity[key] for key in size.capacity), name


def test_a_description_survives_being_stored() -> None:
    for name in ("p5.48xlarge", "t4g.small"):
        assert msgspec.json.decode(msgspec.json.encode(type_of(name)), type=InstanceTypeInfo) == type_of(name)


class TestAttachable:
    """Expected values: what the EBS driver reports on such nodes, from EC2's published limits."""

    @pytest.mark.parametrize(
        ("name", "volumes"),
        [
            ("m5.large", 25),
            ("m5d.large", 24),
            ("g4dn.xlarge", 23),
            ("m7i.large", 31),
            ("m7i.48xlarge", 127),
            ("m4.large", 39),
        ],
    )
    def test_volumes_beside_the_root_and_a_warm_interface(self, name: str, volumes: int) -> None:
        assert sized(name).attachable_volumes == {"ebs.csi.aws.com": volumes}

    def test_each_volume_of_the_class_takes_a_place(self) -> None:
        devices = tuple(BlockDeviceMapping(f"/dev/xvd{letter}", volume_size="20Gi") for letter in "abc")
        assert sized("m5.large", block_device_mappings=devices).attachable_volumes == {"ebs.csi.aws.com": 23}
