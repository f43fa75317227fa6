"""What the API server takes and what still means nothing to a plan, or not what was probably meant."""

from typing import Any

from spotwright.cli.inputs.validation.kinds import Api, api_of
from spotwright.cli.inputs.validation.problems import Kind, Problem, Problems

type Json = dict[str, Any]


def remarks(content: Json) -> Problems:
    """About a valid object."""
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
