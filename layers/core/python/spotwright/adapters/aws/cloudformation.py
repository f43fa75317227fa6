"""The outputs of a deployed CloudFormation stack."""

from typing import TYPE_CHECKING

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, NotFound

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.client import CloudFormationClient


def stack_outputs(cloudformation: "CloudFormationClient", stack: str) -> dict[str, str]:
    """Outputs of a stack by name. Raises NotFound when the stack does not exist, else ApiError."""
    try:
        with translate_errors(f"DescribeStacks {stack}"):
            (description,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ApiError as failure:
        # CloudFormation has no code of its own for a stack that does not exist.
        if failure.code == "ValidationError" and "does not exist" in str(failure):
            raise NotFound(f"there is no stack {stack}", code=failure.code) from failure
        raise
    return {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", ())}
