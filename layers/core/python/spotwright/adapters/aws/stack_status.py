"""What CloudFormation is doing with a stack.

A custom resource is told of an update and of its roll-back in the same way:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref-requesttypes-update.html
"""

from typing import Any

from spotwright.adapters.aws.errors import translate_errors

_UPDATING = "UPDATE_IN_PROGRESS"


def is_updating(cloudformation: Any, stack_id: str) -> bool:
    """Whether the stack is updated, and not rolled back to what it was. Raises ApiError."""
    with translate_errors("DescribeStacks"):
        (stack,) = cloudformation.describe_stacks(StackName=stack_id)["Stacks"]
    return bool(stack["StackStatus"] == _UPDATING)
