"""SSM parameters that hold image ids."""

from collections.abc import Sequence
from itertools import batched
from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.errors import translate_errors

if TYPE_CHECKING:
    from mypy_boto3_ssm.client import SSMClient

# Names in a GetParameters call.
BATCH_SIZE: Final = 10


def get_parameters(client: "SSMClient", names: Sequence[str]) -> dict[str, str]:
    """Values by name; parameters that do not exist are left out."""
    values: dict[str, str] = {}
    for batch in batched(names, BATCH_SIZE, strict=False):
        with translate_errors("GetParameters"):
            answer = client.get_parameters(Names=list(batch))
        values |= {parameter["Name"]: parameter["Value"] for parameter in answer["Parameters"]}
    return values
