"""What is quicker than moto's own answers the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.core.model import ServiceModel
from moto.core.serialize import JSONSerializer
from moto.core.utils import get_service_model
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table

from local.aws.storage import large_tables

ROWS = [f"{kind}#{number}" for kind in ("launch", "notice") for number in range(12)]


def text(value: str) -> DynamoType:
    return DynamoType({"S": value})


@pytest.fixture(scope="module")
def table() -> Table:
    backend = DynamoDBBackend("ap-northeast-2", "123456789012")
    made = backend.create_table(
        "rows",
        schema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        throughput={},
        attr=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "timer", "due")],
        global_indexes=[
            {
                "IndexName": "due",
                "KeySchema": [
                    {"AttributeName": "timer", "KeyType": "HASH"},
                    {"AttributeName": "due", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        indexes=[],
        streams={},
        billing_mode="PAY_PER_REQUEST",
        sse_specification={},
        tags=[],
        deletion_protection_enabled=False,
        warm_throughput=None,
    )
    for cluster in ("blue", "green"):
        for row in ROWS:
            timer = {"timer": {"S": cluster}, "due": {"S": row[::-1]}} if row.endswith(("1", "2")) else {}
            backend.put_item("rows", {"pk": {"S": cluster}, "sk": {"S": row}, "body": {"S": cluster + row}} | timer)
    return made


def seen(answer: tuple[list[Any], int, Any]) -> tuple[list[Any], int, Any]:
    rows, scanned, last = answer
    return [row.to_json() for row in rows], scanned, last


@pytest.mark.parametrize("cluster", ["blue", "nobody"])
@pytest.mark.parametrize(
    ("comparison", "keys"),
    [
        ("BEGINS_WITH", ["notice#"]), ("BEGINS_WITH", ["pause"]), ("=", ["launch#3"]), ("<", ["notice#"]),
        (">=", ["launch#5"]), ("BETWEEN", ["launch#2", "notice#3"]), (None, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("limit", "start", "forward"),
    [(None, None, True), (None, None, False), (3, None, True), (None, "notice#1", True), (2, "launch#4", False)],
)
def test_a_query_answers_as_motos(
    table: Table, cluster: str, comparison: str | None, keys: list[str], limit: Any, start: str | None, forward: bool
) -> None:
    after = None if start is None else {"pk": {"S": cluster}, "sk": {"S": start}}
    asked = (text(cluster), comparison, [text(key) for key in keys], limit, after, forward, None, None)
    assert seen(large_tables.query(table, *asked)) == seen(large_tables._query(table, *asked))


@pytest.mark.parametrize("cluster", ["blue", "nobody"])
@pytest.mark.parametrize(("comparison", "keys"), [("<=", ["1#z"]), (">", ["1#hcnual"]), (None, [])])
@pytest.mark.parametrize(("limit", "forward"), [(None, True), (None, False), (2, True)])
def test_a_query_of_an_index_answers_as_motos(
    table: Table, cluster: str, comparison: str | None, keys: list[str], limit: Any, forward: bool
) -> None:
    values = [text(key) for key in keys]
    asked = (text(cluster), comparison, values, limit, None, forward, None, "due")
    conditions: Any = {
        "hash_key_conditions": [("timer", text(cluster))],
        "range_key_conditions": [("due", comparison, values)] if comparison else [],
    }
    quick = large_tables.query(table, *asked, **conditions)
    assert seen(quick) == seen(large_tables._query(table, *asked, **conditions))
    assert bool(quick[0]) == (cluster == "blue")


def values() -> st.SearchStrategy[Any]:
    scalars = st.one_of(
        st.builds(lambda value: {"S": value}, st.text(max_size=5)),
        st.builds(lambda value: {"N": str(value)}, st.integers()),
        st.builds(lambda value: {"BOOL": value}, st.booleans()),
        st.just({"NULL": True}),
        st.just({"SS": ["a", "b"]}),
        st.just({"B": "eA=="}),
    )
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.builds(lambda items: {"L": items}, st.lists(inner, max_size=3)),
            st.builds(lambda items: {"M": items}, st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3)),
        ),
        max_leaves=6,
    )


@given(attributes=st.dictionaries(st.text(min_size=1, max_size=4), values(), max_size=4))
def test_rows_are_measured_compared_and_copied_as_motos(attributes: dict[str, Any]) -> None:
    row = Item(text("blue"), text("launch#1"), attributes)
    assert large_tables.size(row.attrs) == sum(len(name.encode()) + value.size() for name, value in row.attrs.items())
    for value in row.attrs.values():
        assert large_tables.cast_value(value) == large_tables._value.fget(value)
        assert large_tables.copied(value, {}).to_regular_json() == value.to_regular_json()


def test_a_copy_of_a_list_does_not_change_with_it() -> None:
    value = DynamoType({"L": [{"S": "a"}]})
    copied = large_tables.copied(value, {})
    value.value.append(text("b"))
    assert copied.to_regular_json() == {"L": [{"S": "a"}]}


@given(item=st.dictionaries(st.text(min_size=1, max_size=4), values(), max_size=4))
def test_attribute_values_are_written_as_motos(item: dict[str, Any]) -> None:
    model: ServiceModel = get_service_model("dynamodb")
    operation = model.operation_model("Query")

    class Quick(JSONSerializer):
        _serialize_type_structure = large_tables.serialize_structure

    class Motos(JSONSerializer):
        _serialize_type_structure = large_tables._serialize_structure

    result = {"Items": [item], "Count": 1}
    assert Quick(operation).serialize(result) == Motos(operation).serialize(result)
