"""DynamoDB says of each row why it cancelled a transaction: somebody was faster, too many requests, a bad row."""

from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.errors import ApiError, Conflict, InvalidRequest, Throttled

ROWS = [({"pk": {"S": "p"}, "sk": {"S": sk}}, 0) for sk in ("a", "b")]


def refusing(code: str, *reasons: str) -> Table:
    """A table whose transactions are refused."""

    class Client:
        def transact_write_items(self, **_: Any) -> dict[str, Any]:
            response: Any = {"Error": {"Code": code, "Message": f"[{', '.join(reasons)}]"}}
            if reasons:
                response["CancellationReasons"] = [{"Code": reason} for reason in reasons]
            raise ClientError(response, "TransactWriteItems")

    return Table(cast("Any", Client()), "rows")


@pytest.mark.parametrize(
    ("reasons", "error"),
    [
        (("None", "ConditionalCheckFailed"), Conflict),
        (("TransactionConflict", "None"), Conflict),
        (("ThrottlingError", "None"), Throttled),
        (("None", "ProvisionedThroughputExceeded"), Throttled),
        (("ThrottlingError", "ConditionalCheckFailed"), Conflict),
        (("None", "ValidationError"), InvalidRequest),
        (("ItemCollectionSizeLimitExceeded", "None"), InvalidRequest),
        (("None", "SomethingNew"), Conflict),
        ((), Conflict),
    ],
)
def test_a_cancelled_transaction_raises_what_its_rows_say(reasons: tuple[str, ...], error: type[ApiError]) -> None:
    table = refusing("TransactionCanceledException", *reasons)
    with pytest.raises(error):
        table.put_all_versioned(ROWS)
    assert not table.put_together([{"Item": item} for item, _ in ROWS]), "each row alone may go through"


def test_a_transaction_that_the_sdk_has_repeated_in_vain_is_not_followed_by_writes_of_each_row() -> None:
    table = refusing("ProvisionedThroughputExceededException")
    with pytest.raises(Throttled):
        table.put_together([{"Item": item} for item, _ in ROWS])
