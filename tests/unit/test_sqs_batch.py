"""Batches: exactly the messages that failed come back."""

import itertools
import json
import math
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.adapters import time_limit
from spotwright.errors import Denied, InvalidRequest, Unavailable
from spotwright.telemetry import log_lines
from spotwright.workflows.ports.doorbells import Doorbell

CLUSTERS = ("blue", "green")
# Powertools keeps one logger for each service name, with the output of the test that made it.
NUMBERS = itertools.count()


def message(number: int, **bell: Any) -> dict[str, Any]:
    body = {"schema": 1, "cluster": "blue", "kind": "pods", "key": "", "epoch": 0} | bell
    return {"messageId": f"m{number}", "body": json.dumps(body)}


class Left:
    """A context with so much time left at each look, the last one for ever."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)

    def get_remaining_time_in_millis(self) -> int:
        return int(1000 * (self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]))


def ring_nothing(cluster: str, bells: tuple[Doorbell, ...]) -> None:
    raise AssertionError(f"{cluster}: {bells}")


def run(
    *records: dict[str, Any],
    work: sqs_batch.Work,
    left: tuple[float, ...] = (60.0,),
    ring_again: sqs_batch.Work = ring_nothing,
) -> set[str]:
    answer = sqs_batch.process_by_cluster(
        {"Records": list(records)}, kinds=("pods",), clusters=CLUSTERS, work=work,
        logger=Logger(service=f"test-{next(NUMBERS)}"), metrics=Metrics(namespace="test", service="test"),
        context=Left(*left), ring_again=ring_again,
    )  # fmt: skip
    return {one["itemIdentifier"] for one in answer["batchItemFailures"]}


def test_a_foreign_message_fails_alone() -> None:
    done: list[str] = []
    failed = run(
        message(1), {"messageId": "m2", "body": "hello"}, message(3, kind="tea"), message(4, cluster="red"),
        message(5, schema=99), message(6, cluster="green"), work=lambda cluster, _: done.append(cluster),
    )  # fmt: skip
    assert failed == {"m2", "m3", "m4", "m5"}
    assert done == ["blue", "green"]


def test_a_message_as_long_as_sqs_takes_fails_alone_and_nothing_is_read_for_it() -> None:
    done: list[tuple[Doorbell, ...]] = []
    failed = run(
        message(1, key="x" * 250_000), message(2, key="x" * 253, kind="pods"),
        work=lambda _, bells: done.append(bells),
    )  # fmt: skip
    assert failed == {"m1"}
    assert [len(bell.key) for bells in done for bell in bells] == [253]


@pytest.mark.parametrize(
    "body", ['{"cluster": "\ud83d"}', "[" * 1000, '{"x": ' + "[" * 500 + "]" * 500 + "}", "", "null"]
)
def test_a_message_that_is_no_json_object_fails_alone(body: str) -> None:
    done: list[str] = []
    failed = run(message(1), {"messageId": "m2", "body": body}, work=lambda cluster, _: done.append(cluster))
    assert (failed, done) == ({"m2"}, ["blue"])


def test_a_message_that_is_too_long_is_named_with_its_beginning() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        sqs_batch.parse_doorbell(message(1, key="x" * 2000)["body"], kinds=("pods",), clusters=CLUSTERS)
    assert str(refusal.value) == (
        "message: 2071 characters; a doorbell has at most 1024:"
        """ '{"schema": 1, "cluster": "blue", "kind": "pods", "key": "xxxxxxxxxxxxxxxxxxx..."""
    )


def test_a_cluster_in_trouble_fails_its_own_messages_only() -> None:
    def work(cluster: str, _: object) -> None:
        if cluster == "blue":
            raise Unavailable("no answer")

    assert run(message(1), message(2, cluster="green"), message(3), work=work) == {"m1", "m3"}


def test_an_object_that_always_fails_returns_its_own_messages_only() -> None:
    def work(_: str, bells: tuple[Doorbell, ...]) -> dict[Doorbell, Exception]:
        return {bell: ValueError("cannot be read") for bell in bells if bell.key == "poison"}

    poison = {"key": "poison"}
    assert run(message(1), message(2, **poison), message(3, key="x"), message(4, **poison), work=work) == {"m2", "m4"}


def test_equal_doorbells_are_worked_off_once_and_star_is_every_cluster() -> None:
    seen: list[tuple[str, tuple[Doorbell, ...]]] = []
    run(message(1), message(2), message(3, cluster="*"), work=lambda *rung: seen.append(rung))
    assert [(cluster, len(bells)) for cluster, bells in seen] == [("blue", 1), ("green", 1)]


def test_a_flood_of_a_cluster_comes_after_the_others() -> None:
    done: list[str] = []
    flood = (message(number, key=str(number)) for number in range(9))
    run(*flood, message(9, cluster="green"), work=lambda cluster, _: done.append(cluster))
    assert done == ["green", "blue"]


def test_a_cluster_for_which_no_time_is_left_is_rung_for_again_and_its_messages_are_done() -> None:
    done: list[str] = []
    again: list[tuple[str, tuple[Doorbell, ...]]] = []
    failed = run(
        message(1), message(2, cluster="green"), left=(14.0,),
        work=lambda cluster, _: done.append(cluster), ring_again=lambda *rung: again.append(rung),
    )  # fmt: skip
    assert failed == set()
    assert done == ["blue"], "the first cluster is always worked on"
    assert again == [("green", (Doorbell("green", "pods"),))]


def test_messages_that_cannot_be_rung_again_come_back() -> None:
    def refuse(cluster: str, _: object) -> None:
        raise Unavailable("no such queue")

    assert run(message(1), message(2, cluster="green"), left=(1.0,), work=lambda *_: None, ring_again=refuse) == {"m2"}


def test_the_api_server_is_asked_no_longer_than_shortly_before_the_end() -> None:
    """Lambda would end the invocation with its process, and hold its messages back for the visibility timeout."""
    left: list[float] = []
    run(message(1), left=(30.0,), work=lambda *_: left.append(time_limit.seconds_left()))
    assert left == [pytest.approx(30 - time_limit.CLOSING_SECONDS, abs=2)]
    assert time_limit.seconds_left() == math.inf


@pytest.mark.parametrize(
    ("change", "named"), [({"kind": "tea"}, "'tea'"), ({"cluster": "red"}, "'red'"), ({"schema": 7}, "7")]
)
def test_a_refusal_names_field_value_and_what_is_allowed(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        sqs_batch.parse_doorbell(message(1, **change)["body"], kinds=("pods",), clusters=CLUSTERS)


def test_metrics_and_lines_of_a_cluster_carry_its_name_even_when_its_work_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(cluster: str, _: object) -> None:
        raise Unavailable(f"{cluster} does not answer")

    run(message(1, cluster="blue"), message(2, cluster="green"), message(3, kind="tea"), work=work)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    written = [line for line in lines if "_aws" in line]
    assert [(line["cluster"], line["WorkFailed"]) for line in written] == [("blue", [1.0]), ("green", [1.0])]
    (dimensions,) = {tuple(sorted(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"][0])) for line in written}
    assert dimensions == ("cluster", "service")
    (rejected,) = [line for line in lines if line.get("message") == log_lines.REJECTED_MESSAGE.message]
    assert "cluster" not in rejected, "it is of no cluster"


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException", "RequestExpired"])
def test_a_process_whose_credentials_have_expired_ends_after_its_batch(code: str) -> None:
    done: list[str] = []

    def work(cluster: str, _: tuple[Doorbell, ...]) -> None:
        done.append(cluster)
        if cluster == "blue":
            raise Denied("GetItem: expired", code=code)

    with pytest.raises(SystemExit):
        run(message(1), message(2, cluster="green"), work=work)
    assert sorted(done) == ["blue", "green"]
