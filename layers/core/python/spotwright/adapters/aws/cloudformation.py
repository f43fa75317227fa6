"""The outputs of a deployed CloudFormation stack."""

from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, NotFound

# Every cell's stack has this output.
_EVERY_CELL_HAS: Final = "TableName"
# The names of its clusters, with commas between; a stack of an earlier version does not say.
_CLUSTERS: Final = "Clusters"

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.client import CloudFormationClient


def stack_outputs(cloudformation: "CloudFormationClient", stack: str) -> dict[str, str]:
    """Outputs of a stack of ours by name. Raises NotFound when it does not exist or is another's, else ApiError."""
    try:
        with translate_errors(f"DescribeStacks {stack}"):
            (description,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ApiError as failure:
        # CloudFormation has no code of its own for a stack that does not exist.
        if failure.code == "ValidationError" and "does not exist" in str(failure):
            raise NotFound(f"there is no stack {stack}", code=failure.code) from failure
        raise
    outputs = {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", ())}
    if _EVERY_CELL_HAS not in outputs:
        raise NotFound(f"stack {stack} has no output {_EVERY_CELL_HAS}: it is not Spotwright's, or not deployed yet")
    return outputs


def cluster_outputs(cloudformation: "CloudFormationClient", stack: str, cluster: str) -> dict[str, str]:
    """``stack_outputs`` of the stack that a cluster belongs to. Raises NotFound where the stack has other clusters."""
    outputs = stack_outputs(cloudformation, stack)
    clusters = outputs.get(_CLUSTERS, cluster).split(",")
    if cluster not in clusters:
        named = f"stack {stack} has no cluster {cluster}{_suggestion(cluster, clusters)}"
        raise NotFound(f"{named}; it has {', '.join(clusters)}", code="NoSuchCluster")
    return outputs


def _suggestion(cluster: str, clusters: list[str]) -> str:
    import difflib  # Slow to import, and rarely needed.

    similar = difflib.get_close_matches(cluster, clusters, n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""
