"""The clusters of cdk.json as the preflight looks at them; `cdk synth` checks all of the rest."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from spotwright.cli import InputError
from spotwright.model.quoting import quote
from spotwright.workflows.install.preflight.facts import (
    CLUSTER_NAME,
    CLUSTER_NAMES,
    KMS_KEY,
    KMS_KEYS,
    NODE_ROLE,
    NODE_ROLES,
    Target,
)

CONTEXT_KEY = "spotwright"


def read_context(path: str) -> dict[str, Any]:
    """A cdk.json with its context. Raises InputError."""
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; name it with --config") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: got {quote(content)}, allowed: an object")
    return content


def read_clusters(path: str) -> tuple[dict[str, Any], list[Any]]:
    """A cdk.json, and the list of clusters in it, to be added to. Raises InputError."""
    content = read_context(path)
    cell = (content.get("context") or {}).get(CONTEXT_KEY) if isinstance(content.get("context"), dict) else None
    clusters = cell.get("clusters") if isinstance(cell, dict) else None
    if not isinstance(clusters, list):
        raise InputError(f"{path} has no list context.{CONTEXT_KEY}.clusters; see docs/clusters.md")
    return content, clusters


def read_targets(path: str, region: str) -> tuple[Target, ...]:
    """The clusters that a cdk.json names, in its order. Raises InputError."""
    context = read_context(path).get("context")
    cell = context.get(CONTEXT_KEY) if isinstance(context, Mapping) else None
    if not isinstance(cell, Mapping):
        raise InputError(f"{path} has no object context.{CONTEXT_KEY}; see docs/clusters.md")
    clusters = cell.get("clusters")
    if not isinstance(clusters, list) or not clusters:
        raise InputError(f"{path}: context.{CONTEXT_KEY}.clusters: got {quote(clusters)}, allowed: a list of objects")
    where = f"{path}: context.{CONTEXT_KEY}"
    of_cell = {
        "cell": _text(cell, "cell", where) or "main",
        "permissions_boundary": _text(cell, "permissionsBoundary", where),
        "kms_key_arn": _key(cell, where),
        "has_topic": bool(_text(cell, "alarmEmail", where)),
    }
    targets = (_target(cluster, f"{where}.clusters[{index}]", region) for index, cluster in enumerate(clusters))
    return tuple(msgspec.structs.replace(target, **of_cell) for target in targets)


def _target(cluster: Any, where: str, region: str) -> Target:
    if not isinstance(cluster, Mapping):
        raise InputError(f"{where}: got {quote(cluster)}, allowed: an object")
    vpc = cluster.get("vpc") or {}
    if not isinstance(vpc, Mapping):
        raise InputError(f"{where}.vpc: got {quote(vpc)}, allowed: an object")
    name = _text(cluster, "name", where)
    if not re.fullmatch(CLUSTER_NAME, name):
        raise InputError(f"{where}.name: got {quote(name) if name else 'nothing'}, allowed: {CLUSTER_NAMES}")
    node_roles = _roles(cluster, "nodeRoles", where)
    if not node_roles:
        raise InputError(f"{where}.nodeRoles: got nothing, allowed: a list of {NODE_ROLES}, at least one")
    return Target(
        name=name,
        region=region,
        node_roles=node_roles,
        windows_node_roles=_roles(cluster, "windowsNodeRoles", where),
        forwarder_image=_text(cluster, "forwarderImage", where),
        forwarder_architecture=_text(cluster, "forwarderArchitecture", where) or "amd64",
        vpc_id=_text(vpc, "vpcId", f"{where}.vpc"),
        subnet_ids=_texts(vpc, "subnetIds", f"{where}.vpc"),
        security_group_ids=_texts(vpc, "securityGroupIds", f"{where}.vpc"),
        is_isolated=_is_isolated(cluster, where),
        skipped_checks=_texts(cluster, "skipChecks", where),
    )


def _key(cell: Mapping[str, Any], where: str) -> str:
    arn = _text(cell, "kmsKeyArn", where)
    if arn and not re.fullmatch(KMS_KEY, arn):
        raise InputError(f"{where}.kmsKeyArn: got {quote(arn)}, allowed: {KMS_KEYS}")
    return arn


def _is_isolated(cluster: Mapping[str, Any], where: str) -> bool:
    settings = cluster.get("settings") or {}
    if not isinstance(settings, Mapping):
        raise InputError(f"{where}.settings: got {quote(settings)}, allowed: an object")
    return _text(settings, "ISOLATED_VPC", f"{where}.settings").lower() == "true"


def _roles(content: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    roles = _texts(content, key, where)
    for index, role in enumerate(roles):
        if not re.fullmatch(NODE_ROLE, role):
            raise InputError(f"{where}.{key}[{index}]: got {quote(role)}, allowed: {NODE_ROLES}")
    return roles


def _text(content: Mapping[str, Any], key: str, where: str) -> str:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where}.{key}: got {quote(value)}, allowed: a text")
    return value or ""


def _texts(content: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = content.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{where}.{key}: got {quote(values)}, allowed: a list of texts")
    return tuple(values)
