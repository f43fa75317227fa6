"""The account's quotas of vCPUs: which of them a type counts against, and how a higher one is asked for.

Source: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

from typing import Final

import msgspec

from spotwright.model import labels

STANDARD: Final = "standard"
# Beginnings of instance types, and of Karpenter's categories of them; the first one that fits counts.
_FAMILIES: Final = (
    ("hpc", "hpc"), ("inf", "inf"), ("trn", "trn"), ("dl", "dl"), ("u", "high-memory"),
    ("vt", "g"), ("g", "g"), ("p", "p"), ("f", "f"), ("x", "x"),
)  # fmt: skip
_NAMES: Final = {
    STANDARD: "standard (A, C, D, H, I, M, R, T, Z)", "dl": "DL", "f": "F", "g": "G and VT", "hpc": "HPC",
    "high-memory": "High Memory", "inf": "Inf", "p": "P", "trn": "Trn", "x": "X",
}  # fmt: skip
# HPC and High Memory are not sold as spot.
_CODES: Final = {
    labels.ON_DEMAND: {
        STANDARD: "L-1216C47A", "dl": "L-6E869C2A", "f": "L-74FC7D96", "g": "L-DB2E81BA", "hpc": "L-F7808C92",
        "high-memory": "L-43DA4232", "inf": "L-1945791B", "p": "L-417A185B", "trn": "L-2C3B7624", "x": "L-7295265B",
    },
    labels.SPOT: {
        STANDARD: "L-34B43A08", "dl": "L-85EED4F7", "f": "L-88CF9481", "g": "L-3819A6DF", "inf": "L-B5D1601B",
        "p": "L-7212CCBC", "trn": "L-6B0D517C", "x": "L-E3A00192",
    },
}  # fmt: skip


class VcpuQuota(msgspec.Struct, frozen=True, order=True):
    """A quota of an account in a region. ``code``: Service Quotas' own; ``name`` such as ``P spot``."""

    code: str
    name: str


def quota_family(instance_type: str) -> str:
    """The family of types that a type counts with, the same for spot and on-demand."""
    letters = instance_type.partition(".")[0].rstrip("0123456789").lower()
    return next((family for start, family in _FAMILIES if letters.startswith(start)), STANDARD)


def vcpu_quota(capacity_type: str, family: str) -> VcpuQuota | None:
    """The quota that instances of a family count against; None where there is none."""
    code = _CODES.get(capacity_type, {}).get(family)
    return VcpuQuota(code, f"{_NAMES[family]} {capacity_type}") if code else None


def increase_command(code: str, vcpus: str) -> str:
    """What a user says to be allowed more."""
    return (
        f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code} --desired-value"
        f" {vcpus}"
    )
