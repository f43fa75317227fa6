"""Transactions of puts answer as moto's own do."""

from typing import Any

import pytest
from moto.core.exceptions import JsonRESTError
from moto.dynamodb.models import DynamoDBBackend

from local.aws.storage import transactions

_IS_NEW = "attribute_not_exists(pk)"


@pytest.fixture
def backend() -> DynamoDBBackend:
    made = DynamoDBBackend("eu-west-1", "123456789012")
    made.create_table(
        "rows",
        schema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        throughput=None,
        attr=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        global_indexes=None,
        indexes=None,
        streams=None,
        billing_mode="PAY_PER_REQUEST",
        sse_specification=None,
        tags=[],
        deletion_protection_enabled=False,
        warm_throughput=None,
    )
    return made


def put(sort: str, text: str = "", **condition: Any) -> dict[str, Any]:
    item = {"pk": {"S": "blue"}, "sk": {"S": sort}, "text": {"S": text}}
    return {"Put": {"TableName": "rows", "Item": item, **condition}}


def stored(backend: DynamoDBBackend) -> set[str]:
    return {row.range_key.value for row in backend.get_table("rows").all_items() if row.range_key is not None}


@pytest.mark.parametrize("write", [transactions.transact_write_items, transactions._original], ids=["quick", "moto's"])
@pytest.mark.parametrize(
    ("items", "refusal"),
    [
        (
            [put("new", ConditionExpression=_IS_NEW), put("there", ConditionExpression=_IS_NEW)],
            "ConditionalCheckFailed",
        ),
        ([put("new"), put("new")], "multiple operations on one item"),
        ([put(f"row-{number}") for number in range(101)], "less than or equal to 100"),
    ],
)
def test_what_is_refused_leaves_everything_as_it_was(
    backend: DynamoDBBackend, write: Any, items: list[dict[str, Any]], refusal: str
) -> None:
    write(backend, [put("there")])
    with pytest.raises(JsonRESTError) as refused:
        write(backend, items)
    assert refusal in str(refused.value.description)
    assert stored(backend) == {"there"}


@pytest.mark.parametrize(
    ("items", "refusal"),
    [
        ([put("small"), put("large", "x" * 410 * 1024)], "ValidationError"),
        ([put(f"row-{number}", "x" * 390 * 1024) for number in range(11)], "exceeded"),
    ],
    ids=["an item", "all together"],
)
def test_items_are_measured(backend: DynamoDBBackend, items: list[dict[str, Any]], refusal: str) -> None:
    with pytest.raises(JsonRESTError) as refused:
        transactions.transact_write_items(backend, items)
    assert refusal in str(refused.value.description)
    assert stored(backend) == set()


def test_a_condition_sees_the_item_that_it_would_replace(backend: DynamoDBBackend) -> None:
    values = {":t": {"S": "before"}}
    transactions.transact_write_items(backend, [put("one", "before"), put("two", "before")])
    again = [
        put(name, "after", ConditionExpression="#t = :t", ExpressionAttributeNames={"#t": "text"},
            ExpressionAttributeValues=values)
        for name in ("one", "two")
    ]  # fmt: skip
    transactions.transact_write_items(backend, again)
    assert {row.attrs["text"].value for row in backend.get_table("rows").all_items()} == {"after"}
