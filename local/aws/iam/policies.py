"""IAM's policy language: does a set of policy documents allow an action on a resource in a context?

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements.html. Pure; knows no service.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from local.aws.iam.conditions import Context, holds

# The resource of an action whose resources are not known here: every Resource element fits it.
ANY_RESOURCE = ""


class EvaluationResult(StrEnum):
    ALLOWED = "allowed"
    EXPLICIT_DENY = "explicitly denied"
    IMPLICIT_DENY = "not allowed"


@dataclass(frozen=True)
class AccessRequest:
    """One question to IAM: may `action` be done to `resource` (an ARN) in `context` (keys in lower case)?"""

    action: str
    resource: str = ANY_RESOURCE
    context: Context = field(default_factory=dict)


def evaluate(documents: Iterable[Mapping[str, Any]], access: AccessRequest) -> EvaluationResult:
    """An explicit deny wins; otherwise one allow is enough."""
    answer = EvaluationResult.IMPLICIT_DENY
    for document in documents:
        for statement in _list(document.get("Statement")):
            if not applies(statement, access):
                continue
            if statement.get("Effect") == "Deny":
                return EvaluationResult.EXPLICIT_DENY
            answer = EvaluationResult.ALLOWED
    return answer


def applies(statement: Mapping[str, Any], access: AccessRequest) -> bool:
    """Whether action, resource and conditions of the statement fit (principals are the caller's business)."""
    return (
        _fits(statement, "Action", access.action.lower(), {})
        and _fits_resource(statement, access)
        and holds(statement.get("Condition") or {}, access.context)
    )


def _fits_resource(statement: Mapping[str, Any], access: AccessRequest) -> bool:
    """Trust policies name no resource; ANY_RESOURCE fits every allow, and a deny of everything."""
    if not ("Resource" in statement or "NotResource" in statement):
        return True
    if access.resource == ANY_RESOURCE:
        return statement.get("Effect") == "Allow" or "*" in _list(statement.get("Resource"))
    return _fits(statement, "Resource", access.resource, access.context)


def _fits(statement: Mapping[str, Any], element: str, value: str, context: Context) -> bool:
    if f"Not{element}" in statement:
        return not _any(_list(statement[f"Not{element}"]), element, value, context)
    return _any(_list(statement.get(element)), element, value, context)


def _any(patterns: Sequence[str], element: str, value: str, context: Context) -> bool:
    for pattern in patterns:
        text = pattern.lower() if element == "Action" else substitute_variables(pattern, context)
        if wildcard(text).fullmatch(value):
            return True
    return False


def substitute_variables(pattern: str, context: Context) -> str:
    """Policy variables `${key}` replaced by the context's single value; unknown ones match nothing."""

    def value(match: re.Match[str]) -> str:
        found = context.get(match[1].lower(), ())
        return found[0] if len(found) == 1 else "\x00"

    return re.sub(r"\$\{([^}*?$][^}]*)\}", value, pattern) if "${" in pattern else pattern


@lru_cache(maxsize=8192)
def wildcard(pattern: str) -> re.Pattern[str]:
    """`*` any text, `?` one character, everything else literally."""
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.compile("".join(parts), re.DOTALL)


@lru_cache(maxsize=2048)
def parse_document(text: str) -> Mapping[str, Any]:
    """A policy document from its JSON text."""
    parsed: Mapping[str, Any] = json.loads(text)
    return parsed


def policy_document(text: Any) -> Mapping[str, Any]:
    """A policy document from moto, which keeps it as text or as parsed JSON."""
    if isinstance(text, Mapping):
        return text
    return parse_document(text if isinstance(text, str) else json.dumps(text))


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
