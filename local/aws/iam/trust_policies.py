"""Trust policies: whom a role lets assume it."""

from collections.abc import Iterable, Mapping
from typing import Any

from local.aws.iam.conditions import Context
from local.aws.iam.policies import AccessRequest, applies, policy_document


def trusts(role: Any, names: Iterable[str], action: str, context: Context) -> bool:
    """Whether the trust policy of moto's `role` lets a principal with one of these names do `action`."""
    access = AccessRequest(action, context=context)
    allowed = False
    statements = policy_document(role.assume_role_policy_document).get("Statement") or []
    for statement in statements if isinstance(statements, list) else [statements]:
        if names_principal(statement.get("Principal"), {*names, "*"}) and applies(statement, access):
            if statement.get("Effect") == "Deny":
                return False
            allowed = True
    return allowed


def names_principal(principal: Any, mine: set[str]) -> bool:
    """Whether a statement's Principal covers any of these names."""
    if not isinstance(principal, Mapping):
        return principal in mine
    named = [name for value in principal.values() for name in (value if isinstance(value, list) else [value])]
    return any(name in mine for name in named)
