"""What a role may do, as a value, so that grants stand beside the wiring and a wildcard cannot hide.

A resource or action with `*` needs a written reason; the reason becomes the acknowledgement of cdk-nag's
finding about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam

Conditions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Grant:
    """One statement of a role's policy. `wildcard_reason` says why a `*` in it is as narrow as AWS allows; `needed_by`
    names the scenario that fails without it, for the statements of a cluster's roles (tests/rights)."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)
    wildcard_reason: str = ""
    needed_by: str = ""


def grant(holder: iam.Role | iam.ManagedPolicy, *grants: Grant) -> None:
    """Adds the statements to a role's own policy, or to a policy. Raises ValueError for a wildcard without a reason."""
    for each in grants:
        statement = iam.PolicyStatement(
            sid=each.sid,
            actions=list(each.actions),
            resources=list(each.resources),
            conditions=dict(each.conditions),
        )
        if isinstance(holder, iam.Role):
            holder.add_to_policy(statement)
        else:
            holder.add_statements(statement)
        for finding in _wildcards(Stack.of(holder), each):
            acknowledge(holder, f"AwsSolutions-IAM5[{finding}]", each.wildcard_reason)


def acknowledge(construct: Any, finding: str, reason: str) -> None:
    """Accepts one cdk-nag finding on a construct, for a written reason."""
    if not reason:
        raise ValueError(f"{construct.node.path}: {finding} needs a reason")
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))


def _wildcards(stack: Stack, each: Grant) -> list[str]:
    """cdk-nag's names of the findings about a statement."""
    actions = [f"Action::{action}" for action in each.actions if "*" in action]
    resources = [_flat(stack.resolve(resource)) for resource in each.resources]
    return actions + [f"Resource::{resource}" for resource in resources if "*" in resource]


def _flat(value: Any) -> str:
    """A resolved template value as cdk-nag writes it: references in angle brackets."""
    match value:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(_flat(part) for part in parts)
        case _:
            return str(value)
