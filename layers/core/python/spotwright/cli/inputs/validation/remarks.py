"""What the API server takes and what still means nothing to a plan, or not what was probably meant."""

from typing import Any

from spotwright.cli.inputs.validation.kinds import Api, api_of
from spotwright.cli.inputs.validation.problems import Kind, Path, Problem, Problems

type Json = dict[str, Any]


def remarks(content: Json) -> Problems:
    """About a valid object."""
    yield from _memory_in_thousandths(content, ())
    match content["kind"]:
        case "NodePool" if api_of(content) is Api.KARPENTER:
            from spotwright.cli.inputs.validation.karpenter import limit_remarks

            yield from limit_remarks(content)
        case "ResourceQuota":
            text = "it is not counted: pods that it would refuse are planned as if it were not there"
            yield Problem(Kind.VALUE, (), text)
        case "Deployment" if (content.get("spec") or {}).get("paused") is True:
            text = "a new Deployment that is paused makes no pods until it is resumed; its pods are planned"
            yield Problem(Kind.VALUE, ("spec", "paused"), text)


def _memory_in_thousandths(value: Any, path: Path) -> Problems:
    """Requests and limits of memory in thousandths of a byte, at any depth: kubectl warns of them, too."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _memory_in_thousandths(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            amount = item.get("memory") if key in ("requests", "limits") and isinstance(item, dict) else None
            if isinstance(amount, str) and (number := amount.removesuffix("m")).isdecimal() and number != amount:
                text = f"{amount} is {int(number) / 1000:g} bytes; did you mean {number}Mi?"
                yield Problem(Kind.VALUE, (*path, key, "memory"), text)
            else:
                yield from _memory_in_thousandths(item, (*path, key))
