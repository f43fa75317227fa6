"""Whether a resource policy lets an AWS service in: what SQS and Lambda ask when EventBridge delivers. Pure."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any


def policy_allows(policy: str | None, *, service: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
    """An Allow statement for the service principal and no Deny; `context` has lower-case condition keys."""
    effects = {
        statement["Effect"]
        for statement in _listed(json.loads(policy or "{}").get("Statement", ()))
        if _applies(statement, service, action, resource, context)
    }
    return effects == {"Allow"}


def _applies(
    statement: Mapping[str, Any], service: str, action: str, resource: str, context: Mapping[str, str]
) -> bool:
    actions = [str(action).lower() for action in _listed(statement.get("Action", ()))]
    resources = _listed(statement.get("Resource", "*"))
    return (
        _is_principal(statement.get("Principal"), service)
        and any(fnmatchcase(action.lower(), pattern) for pattern in actions)
        and any(fnmatchcase(resource, str(pattern)) for pattern in resources)
        and all(
            _holds(operator, key, values, context)
            for operator, tests in statement.get("Condition", {}).items()
            for key, values in tests.items()
        )
    )


def _is_principal(principal: Any, service: str) -> bool:
    if principal == "*":
        return True
    if not isinstance(principal, Mapping):
        return False
    return "*" in _listed(principal.get("AWS", ())) or service in _listed(principal.get("Service", ()))


def _holds(operator: str, key: str, values: Any, context: Mapping[str, str]) -> bool:
    """One condition; an operator or key that is not known does not hold."""
    actual = context.get(key.lower())
    wanted = [str(value) for value in _listed(values)]
    if actual is None:
        return operator.endswith("IfExists")
    match operator.removesuffix("IfExists"):
        case "StringEquals" | "ArnEquals":
            return any(fnmatchcase(actual, value) for value in wanted)
        case "StringLike" | "ArnLike":
            return any(fnmatchcase(actual, value) for value in wanted)
        case "Bool":
            return actual.lower() in [value.lower() for value in wanted]
        case "StringNotEquals" | "ArnNotEquals" | "StringNotLike" | "ArnNotLike":
            return not any(fnmatchcase(actual, value) for value in wanted)
        case _:
            return False


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
