"""Bucket policies as far as moto asks them: it ignores conditions, so "deny without TLS" would deny all.

The loopback connection counts as TLS. A statement with any other condition is left out of moto's check;
what identities may do is decided before moto is asked.
"""

import json
from typing import Any

from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.models import FakeBucket

from local.aws.emulator import Emulator


def add(_emulator: Emulator) -> None:
    FakeBucket.get_permission = _permission  # type: ignore[method-assign, assignment]


def _permission(bucket: FakeBucket, action: str, resource: str) -> Any:
    if bucket.policy is None:
        return PermissionResult.NEUTRAL
    document = json.loads(bucket.policy)
    statements = document["Statement"]
    listed = statements if isinstance(statements, list) else [statements]
    unconditional = [statement for statement in listed if not statement.get("Condition")]
    if not unconditional:
        return PermissionResult.NEUTRAL
    policy = IAMPolicy(json.dumps({**document, "Statement": unconditional}))
    return policy.is_action_permitted(action, resource)
