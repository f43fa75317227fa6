"""A process asks the table for what it knows to be refused no second time."""

from typing import Any, cast

from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from spotwright.adapters.aws.dynamodb.cluster_row import ClusterItem
from spotwright.adapters.aws.dynamodb.table import Table


class Client:
    """DynamoDB with a cluster's row of a single attribute."""

    def __init__(self) -> None:
        self.noted, self.asked = 0, 0

    def update_item(self, **request: Any) -> dict[str, Any]:
        self.asked += 1
        assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
        values = {name: int(value["N"]) for name, value in request["ExpressionAttributeValues"].items()}
        if self.noted > values[":n"]:
            answer: Any = {
                "Error": {"Code": "ConditionalCheckFailedException", "Message": "the condition does not hold"},
                "Item": {"nodepools_until": {"N": str(self.noted)}},
            }
            raise ClientError(answer, "UpdateItem")
        self.noted = values[":u"]
        return {}


def process(client: Client) -> ClusterItem:
    return ClusterItem(Table(cast("Any", client), "table"), "blue")


def test_a_process_asks_once_until_the_note_ends() -> None:
    client = Client()
    first, second = process(client), process(client)
    assert first.throttle("nodepools", now=1_000, until=4_000) == 0
    assert [second.throttle("nodepools", now=1_000 + n, until=9_000) for n in range(260)] == [4_000] * 260
    assert [first.throttle("nodepools", now=1_000 + n, until=9_000) for n in range(260)] == [4_000] * 260
    assert client.asked == 2
    assert second.throttle("nodepools", now=4_000, until=7_000) == 0


@given(calls=st.lists(st.tuples(st.booleans(), st.integers(0, 5_000), st.integers(1, 10_000)), max_size=40))
def test_what_a_process_remembers_changes_no_answer(calls: list[tuple[bool, int, int]]) -> None:
    """Two processes, and the same calls to one that is made anew for every call."""
    remembered, asked_anew = Client(), Client()
    processes, now = (process(remembered), process(remembered)), 1
    for is_second, passed, length in calls:
        now += passed
        answer = processes[is_second].throttle("nodepools", now=now, until=now + length)
        assert answer == process(asked_anew).throttle("nodepools", now=now, until=now + length)
        assert answer == 0 or answer > now
    assert remembered.noted == asked_anew.noted
    assert remembered.asked <= asked_anew.asked
