"""Tags as condition keys, and ARNs of EC2's resources."""

from collections.abc import Iterable, Mapping
from typing import Any

from local.aws.emulator import Emulator


def ec2_arn(emulator: Emulator, kind: str, name: str) -> str:
    return f"arn:aws:ec2:{emulator.region}:{emulator.account}:{kind}/{name}"


def request_tags(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """`aws:RequestTag/<key>` and `aws:TagKeys` of tags that a call sets; nothing when it sets none."""
    if not tags:
        return {}
    keys = {f"aws:requesttag/{key}".lower(): (value,) for key, value in tags.items()}
    return keys | {"aws:tagkeys": tuple(tags)}


def resource_tags(tags: Mapping[str, str], service: str = "ec2") -> dict[str, tuple[str, ...]]:
    """`aws:ResourceTag/<key>` and the service's own spelling of it."""
    return {
        f"{prefix}:resourcetag/{key}".lower(): (value,) for key, value in tags.items() for prefix in ("aws", service)
    }


def tags_from_pairs(pairs: Iterable[Mapping[str, Any]] | None) -> dict[str, str]:
    """`[{"Key": ..., "Value": ...}]` as a dictionary."""
    return {pair["Key"]: pair.get("Value") or "" for pair in pairs or ()}


def tags_from_specifications(specifications: Iterable[Mapping[str, Any]] | None) -> dict[str, dict[str, str]]:
    """EC2's TagSpecifications by resource type."""
    tags: dict[str, dict[str, str]] = {}
    for specification in specifications or ():
        tags.setdefault(specification["ResourceType"], {}).update(tags_from_pairs(specification.get("Tags")))
    return tags
