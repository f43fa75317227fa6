"""What a rule's target receives of an event: all of it, a part, a constant, or a filled-in template. Pure.

Source: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-transform-target-input.html
"""

import json
import re
from collections.abc import Mapping
from typing import Any

_PLACEHOLDER = re.compile(r'"?<([\w.-]+)>"?')


def target_input(target: Mapping[str, Any], event: Mapping[str, Any], rule_arn: str) -> str:
    """The text that is delivered to `target`."""
    if target.get("Input"):
        return str(target["Input"])
    if target.get("InputPath"):
        return json.dumps(_at(event, target["InputPath"]))
    if target.get("InputTransformer"):
        return _transformed(target["InputTransformer"], event, rule_arn)
    return json.dumps(event)


def _at(event: Mapping[str, Any], path: str) -> Any:
    """The value at a path like `$.detail.state`; None where there is none."""
    value: Any = event
    for name in path.removeprefix("$").strip(".").split("."):
        if name:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _transformed(transformer: Mapping[str, Any], event: Mapping[str, Any], rule_arn: str) -> str:
    values = {name: _at(event, path) for name, path in transformer.get("InputPathsMap", {}).items()}
    values |= {
        "aws.events.rule-arn": rule_arn,
        "aws.events.rule-name": rule_arn.rsplit("/", 1)[-1],
        "aws.events.event.ingestion-time": event["time"],
        "aws.events.event": event,
        "aws.events.event.json": event,
    }

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            return match[0]
        value = values[match[1]]
        quoted = match[0].startswith('"') and match[0].endswith('"')
        if quoted or not isinstance(value, str):
            return json.dumps(value)
        return match[0].replace(f"<{match[1]}>", value)

    return _PLACEHOLDER.sub(filled, transformer["InputTemplate"])
