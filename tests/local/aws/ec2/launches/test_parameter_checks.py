"""What EC2 refuses in a launch template, the local one refuses too."""

from typing import Any

import pytest

from local.aws.calls.request import AwsError
from local.aws.ec2.launches import parameter_checks

EFA_TYPE = {
    "InstanceType": "p5.48xlarge",
    "NetworkInfo": {
        "NetworkCards": [{"MaximumNetworkInterfaces": 2}] * 4,
        "EfaSupported": True,
        "EfaInfo": {"MaximumEfaInterfaces": 4},
    },
    "ProcessorInfo": {},
}
PLAIN = {"InstanceType": "m5.large", "NetworkInfo": {"MaximumNetworkInterfaces": 3}, "ProcessorInfo": {}}


def interface(card: int, device: int, kind: str = "interface", **more: Any) -> dict[str, Any]:
    return {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind} | more


def disk(**ebs: Any) -> dict[str, Any]:
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": ebs}]}


FIRST = interface(0, 0)


def asked(data: dict[str, Any], description: dict[str, Any] = EFA_TYPE) -> None:
    parameter_checks.check_parameters(None, description, data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"NetworkInterfaces": [FIRST, interface(1, 1, "efa-only")]},
        {"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True, "Ipv4PrefixCount": 2}]},
        disk(VolumeType="gp3", Iops=3000, Throughput=125, VolumeSize=20),
        disk(VolumeType="io2", Iops=5000, Encrypted=True, KmsKeyId="alias/x"),
        disk(SnapshotId="snap-1", VolumeInitializationRate=100),
        {"CpuOptions": {"NestedVirtualization": "disabled"}, "MetadataOptions": {"HttpPutResponseHopLimit": 64}},
    ],
)
def test_fine(fine: dict[str, Any]) -> None:
    asked(fine)


@pytest.mark.parametrize(
    "wrong",
    [
        {"NetworkInterfaces": [interface(1, 0)]},
        {"NetworkInterfaces": [FIRST, FIRST]},
        {"NetworkInterfaces": [FIRST, interface(4, 0)]},
        {"NetworkInterfaces": [FIRST, interface(0, 2)]},
        {"NetworkInterfaces": [FIRST, interface(1, 1, "efa-only", Ipv4PrefixCount=1)]},
        {"NetworkInterfaces": [FIRST | {"AssociatePublicIpAddress": True}, interface(1, 1)]},
        {"NetworkInterfaces": [FIRST | {"ConnectionTrackingSpecification": {"UdpTimeout": 61}}]},
        disk(VolumeType="gp2", Iops=3000),
        disk(VolumeType="gp3", Iops=100),
        disk(VolumeType="io1"),
        disk(VolumeType="io1", Iops=100, Throughput=125),
        disk(VolumeSize=20, VolumeInitializationRate=100),
        disk(KmsKeyId="alias/x"),
        {"CpuOptions": {"NestedVirtualization": "enabled"}},
        {"MetadataOptions": {"HttpPutResponseHopLimit": 65}},
    ],
)
def test_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(AwsError):
        asked(wrong)


def test_a_type_without_efa_takes_none() -> None:
    with pytest.raises(AwsError):
        asked({"NetworkInterfaces": [interface(0, 0, "efa")]}, PLAIN)
