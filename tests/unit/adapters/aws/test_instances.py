"""Instances that the steps of an invocation ask for side by side are read by few calls."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any, cast

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.errors import ApiError, Denied, Throttled, Unavailable
from spotwright.model.ec2.fleet import Instance

RUNNING = [f"i-{number}" for number in range(10)]


class Client:
    """EC2 with the instances of ``RUNNING``, as strict as the real one about all ids of a call. The first call waits
    until others wait; ``refusal``: with what calls of several ids are refused; ``limited``: a call about this id alone
    is one too many; ``troubled``: a call about this id alone is refused as those of several; ``together``: so many
    calls of single ids after the first are answered when all of them are there."""

    def __init__(
        self, refusal: str | BotoCoreError = "", *, limited: str = "", troubled: str = "", together: int = 0
    ) -> None:
        self.calls: list[list[str]] = []
        self.open = Event()
        self._refusal, self._limited, self._troubled = refusal, limited, troubled
        self._together = Barrier(together) if together else None

    def describe_instances(self, *, InstanceIds: Sequence[str]) -> dict[str, Any]:
        self.calls.append(list(InstanceIds))
        if len(self.calls) == 1:
            assert self.open.wait(10)
        elif self._together is not None and len(InstanceIds) == 1:
            self._together.wait(5)
        if self._refusal and (len(InstanceIds) > 1 or [*InstanceIds] == [self._troubled]):
            raise _error(self._refusal) if isinstance(self._refusal, str) else self._refusal
        if [*InstanceIds] == [self._limited]:
            raise _error("RequestLimitExceeded")
        if any(not id.startswith("i-") for id in InstanceIds):
            raise _error("InvalidInstanceID.Malformed")
        if not set(InstanceIds) <= {*RUNNING, "i-hidden"}:
            raise _error("InvalidInstanceID.NotFound")
        shown = [_shown(id) for id in InstanceIds if id != "i-hidden"]
        return {"Reservations": [{"Instances": [instance]} for instance in shown]}


def _error(code: str) -> ClientError:
    status = {"HTTPStatusCode": 503 if code in ("InternalError", "Unavailable") else 400}
    answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": status}
    return ClientError(answer, "DescribeInstances")


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


@pytest.mark.parametrize("code", ["InternalError", "Unavailable"])
def test_a_zone_in_trouble_hides_no_instance_of_another_one(code: str) -> None:
    """EC2 fails calls that name an instance of the zone, and says nothing of which one that is."""
    client = Client(code, troubled="i-1")
    found = read(client, ["i-0", "i-1", "i-2", "i-3"])
    assert [instance.id for instance in found if isinstance(instance, Instance)] == ["i-0", "i-2", "i-3"]
    assert isinstance(found[1], Unavailable)


def test_those_that_are_asked_for_one_by_one_do_not_wait_for_each_other() -> None:
    client = Client("InternalError", together=3)
    found = read(client, ["i-0", "i-1", "i-2", "i-3"])
    assert [instance.id for instance in found if isinstance(instance, Instance)] == RUNNING[:4]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ("RequestLimitExceeded", Throttled),
        ("UnauthorizedOperation", Denied),
        (ReadTimeoutError(endpoint_url="https://ec2"), Unavailable),
    ],
)
def test_where_ec2_answers_nobody_nobody_asks_again_one_by_one(
    refusal: str | BotoCoreError, error: type[ApiError]
) -> None:
    client = Client(refusal)
    found = read(client, RUNNING)
    assert [type(answer) for answer in found[1:]] == [error] * 9
    assert len(client.calls) == 2
