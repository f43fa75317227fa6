"""Instances that the steps of an invocation ask for side by side are read by few calls."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.errors import ApiError, Denied, Throttled, Unavailable
from spotwright.model.ec2.fleet import Instance

RUNNING = [f"i-{number}" for number in range(10)]


class Client:
    """EC2 with the instances of ``RUNNING``, as strict as the real one about all ids of a call. The first call waits
    until others wait; ``code``: with what calls of several ids are refused; ``limited``: a call about this id alone is
    one too many."""

    def __init__(self, code: str = "", *, limited: str = "") -> None:
        self.calls: list[list[str]] = []
        self.open = Event()
        self._code, self._limited = code, limited

    def describe_instances(self, *, InstanceIds: Sequence[str]) -> dict[str, Any]:
        self.calls.append(list(InstanceIds))
        if len(self.calls) == 1:
            assert self.open.wait(10)
        if self._code and len(InstanceIds) > 1:
            raise _error(self._code)
        if [*InstanceIds] == [self._limited]:
            raise _error("RequestLimitExceeded")
        if any(not id.startswith("i-") for id in InstanceIds):
            raise _error("InvalidInstanceID.Malformed")
        if not set(InstanceIds) <= {*RUNNING, "i-hidden"}:
            raise _error("InvalidInstanceID.NotFound")
        shown = [_shown(id) for id in InstanceIds if id != "i-hidden"]
        return {"Reservations": [{"Instances": [instance]} for instance in shown]}


def _error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, "DescribeInstances")


def _shown(id: str) -> dict[str, Any]:
    return {
        "InstanceId": id,
        "InstanceType": "c5.large",
        "State": {"Name": "running"},
        "Placement": {"AvailabilityZone": "eu-central-1a"},
    }


def read(client: Client, ids: Sequence[str]) -> list[Instance | None | BaseException]:
    """One thread for each; the first one's call ends when all wait."""
    ec2 = Ec2(cast("Any", client), cluster="a")
    with ThreadPoolExecutor(len(ids)) as threads:
        asked = [threads.submit(ec2.instance, id) for id in ids]
        time.sleep(0.3)
        client.open.set()
    return [answer.exception() or answer.result() for answer in asked]


def test_ten_steps_ask_for_their_instances_by_two_calls() -> None:
    client = Client()
    found = read(client, RUNNING)
    assert [instance.id for instance in found if isinstance(instance, Instance)] == RUNNING
    assert [len(call) for call in client.calls] == [1, 9]


def test_an_instance_that_does_not_exist_hides_no_other_one() -> None:
    found = read(Client(), ["i-0", "i-1", "i-nobody", "x-1", "i-hidden", "i-2"])
    assert [instance.id for instance in found if isinstance(instance, Instance)] == ["i-0", "i-1", "i-2"]
    assert found[2] is None
    assert isinstance(found[3], ApiError)
    assert found[3].code == "InvalidInstanceID.Malformed"
    assert isinstance(found[4], Unavailable)


def test_of_instances_that_are_asked_for_one_by_one_each_has_an_answer_of_its_own() -> None:
    found = read(Client(limited="i-2"), ["i-0", "i-1", "i-nobody", "i-2", "i-3"])
    assert [instance.id for instance in found if isinstance(instance, Instance)] == ["i-0", "i-1", "i-3"]
    assert found[2] is None
    assert isinstance(found[3], Throttled)


@pytest.mark.parametrize(
    ("code", "error"),
    [("RequestLimitExceeded", Throttled), ("InternalError", Unavailable), ("UnauthorizedOperation", Denied)],
)
def test_where_ec2_answers_nobody_nobody_asks_again_one_by_one(code: str, error: type[ApiError]) -> None:
    client = Client(code)
    found = read(client, RUNNING)
    assert [type(answer) for answer in found[1:]] == [error] * 9
    assert len(client.calls) == 2
