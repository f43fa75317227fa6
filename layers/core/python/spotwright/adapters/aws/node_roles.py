"""What IAM says of the roles that nodes run as."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws.answers import ask, find
from spotwright.workflows.install.preflight.facts import NotAsked, Role

if TYPE_CHECKING:
    from mypy_boto3_iam.client import IAMClient


def role(iam: "IAMClient", name: str) -> Role | None | NotAsked:
    """A role by its name, whatever its path; None when IAM says that there is none."""
    short = name.rpartition("/")[2]
    found = find(f"iam:GetRole of {name}", lambda: iam.get_role(RoleName=short)["Role"])
    if found is None or isinstance(found, NotAsked):
        return found
    policies = ask(f"iam:ListAttachedRolePolicies of {name}", lambda: _policies(iam, short))
    if isinstance(policies, NotAsked):
        return policies
    arns, has_own = policies
    of_aws = frozenset(arn.rpartition("/")[2] for arn in arns if ":iam::aws:policy/" in arn)
    trusted = _trusted(found.get("AssumeRolePolicyDocument"))
    has_other, partition = has_own or len(of_aws) < len(arns), found["Arn"].split(":")[1]
    return Role(trusted, of_aws, has_other, found.get("CreateDate"), found.get("Path", "/"), partition)


def _policies(iam: "IAMClient", name: str) -> tuple[list[str], bool]:
    """ARNs of attached policies, and whether there are inline ones."""
    pages = iam.get_paginator("list_attached_role_policies").paginate(RoleName=name)
    attached = [policy["PolicyArn"] for page in pages for policy in page["AttachedPolicies"]]
    return attached, bool(iam.list_role_policies(RoleName=name)["PolicyNames"])


def _trusted(document: Any) -> frozenset[str]:
    """The services that may assume a role."""
    content = json.loads(document) if isinstance(document, str) else document or {}
    services: set[str] = set()
    for statement in _listed(content.get("Statement")):
        principal = statement.get("Principal")
        if statement.get("Effect") == "Allow" and isinstance(principal, Mapping):
            services.update(_listed(principal.get("Service")))
    return frozenset(services)


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else () if value is None else (value,)
