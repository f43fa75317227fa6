"""Capacity and allocatable of booted machines."""

from dataclasses import replace

import pytest

from local.boot.capacity import InstanceType, node_allocatable, node_capacity, read_instance_type, reserved_millicores
from local.boot.kubelet import KubeletSettings
from local.boot.quantity import parse_bytes, parse_millicores

SETTINGS = KubeletSettings({}, (), None, 0, {}, {}, {})
INSTANCE_TYPE = InstanceType(vcpus=2, memory_mib=8192, architectures=("x86_64",), local_storage_gb=75, eni_max_pods=29)
MIB = 1024**2


@pytest.mark.parametrize(("vcpus", "millicores"), [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310)])
def test_reserved_cpu_is_what_the_amazon_linux_bootstrap_reserves(vcpus: int, millicores: int) -> None:
    assert reserved_millicores(vcpus) == millicores


def test_allocatable_is_capacity_without_reservations_and_eviction_threshold() -> None:
    capacity = node_capacity(INSTANCE_TYPE, SETTINGS, volume_gib=20, raid=False)
    allocatable = node_allocatable(INSTANCE_TYPE, SETTINGS, capacity)
    assert allocatable.cpu_millicores == 2000 - 70
    assert capacity.memory_bytes - allocatable.memory_bytes == (11 * 29 + 255 + 100) * MIB
    assert allocatable.pods == 29


@pytest.mark.parametrize("memory_mib", [512, 2048, 8192, 16384, 131072, 786432])
@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_a_node_has_less_memory_than_advertised_but_at_least_what_planners_assume(
    memory_mib: int, architecture: str
) -> None:
    """Karpenter assumes 7.5 % to be missing, and 64 MiB more on arm64."""
    instance_type = replace(INSTANCE_TYPE, memory_mib=memory_mib, architectures=(architecture,))
    memory = node_capacity(instance_type, SETTINGS, volume_gib=20, raid=False).memory_bytes
    contiguous = 64 if architecture == "arm64" else 0
    assert (memory_mib * 0.925 - contiguous) * MIB < memory < memory_mib * MIB


def test_max_pods_of_the_kubelet_wins_but_reserved_memory_follows_the_interfaces() -> None:
    settings = replace(SETTINGS, max_pods=110)
    capacity = node_capacity(INSTANCE_TYPE, settings, volume_gib=20, raid=False)
    assert capacity.pods == 110
    few = node_allocatable(INSTANCE_TYPE, SETTINGS, node_capacity(INSTANCE_TYPE, SETTINGS, volume_gib=20, raid=False))
    assert node_allocatable(INSTANCE_TYPE, settings, capacity).memory_bytes == few.memory_bytes


def test_pods_per_core_limits_pods() -> None:
    settings = replace(SETTINGS, pods_per_core=4)
    assert node_capacity(INSTANCE_TYPE, settings, volume_gib=20, raid=False).pods == 8


def test_explicit_reservations_replace_the_usual_ones_key_by_key() -> None:
    settings = replace(SETTINGS, kube_reserved={"cpu": 500}, system_reserved={"cpu": 100, "memory": MIB})
    capacity = node_capacity(INSTANCE_TYPE, settings, volume_gib=20, raid=False)
    allocatable = node_allocatable(INSTANCE_TYPE, settings, capacity)
    assert allocatable.cpu_millicores == 1400
    assert capacity.memory_bytes - allocatable.memory_bytes == (11 * 29 + 255 + 100 + 1) * MIB


def test_eviction_thresholds_count_as_amount_or_percentage() -> None:
    settings = replace(SETTINGS, eviction_hard={"memory.available": "10%", "nodefs.available": "100%"})
    capacity = node_capacity(INSTANCE_TYPE, settings, volume_gib=20, raid=False)
    allocatable = node_allocatable(INSTANCE_TYPE, settings, capacity)
    reserved = capacity.memory_bytes - allocatable.memory_bytes - (11 * 29 + 255) * MIB
    assert reserved == capacity.memory_bytes // 10
    assert capacity.ephemeral_bytes - allocatable.ephemeral_bytes == 1024**3


def test_local_disks_carry_the_storage_only_when_they_are_asked_to() -> None:
    plain = node_capacity(INSTANCE_TYPE, SETTINGS, volume_gib=100, raid=False).ephemeral_bytes
    raid = node_capacity(INSTANCE_TYPE, SETTINGS, volume_gib=100, raid=True).ephemeral_bytes
    assert 99 * 1024**3 < plain < 100 * 1024**3
    assert 74 * 1000**3 < raid < 75 * 1000**3


def test_pods_follow_the_default_network_card() -> None:
    description = {
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "NetworkInfo": {
            "MaximumNetworkInterfaces": 6,
            "Ipv4AddressesPerInterface": 10,
            "DefaultNetworkCardIndex": 0,
            "NetworkCards": [{"MaximumNetworkInterfaces": 3}, {"MaximumNetworkInterfaces": 3}],
        },
    }
    assert read_instance_type(description).eni_max_pods == 29


@pytest.mark.parametrize(("text", "amount"), [("1Gi", 1024**3), ("1G", 10**9), ("1.5k", 1500), ("100", 100), ("1m", 1)])
def test_quantities_are_whole_numbers(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(("text", "amount"), [("70m", 70), ("2", 2000), ("0.1", 100)])
def test_cpu_is_counted_in_millicores(text: str, amount: int) -> None:
    assert parse_millicores(text) == amount


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "Gi", "1e3x", "1mm"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bytes(text)
