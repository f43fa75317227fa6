"""Custom resources: a function makes, changes and deletes; its answers decide."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.aws.cloudformation.stack_driver import BROKEN_QUEUE, StackDriver
from tests.local.aws.serverless import Aws

# Records every request and answers as the property `Behave` (by request type) tells it.
SOURCE = """
import json, urllib.request
def handler(event, context):
    properties = event["ResourceProperties"]
    with open(properties["Record"], "a") as file:
        file.write(json.dumps(event) + "\\n")
    told = json.loads(properties.get("Behave", "{}")).get(event["RequestType"], {})
    if told == "silence":
        return
    name = properties["Name"]
    answer = {"Status": "SUCCESS", "PhysicalResourceId": "thing-" + name, "Data": {"Length": len(name)}}
    answer |= {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")} | told
    body = json.dumps(answer).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")
    urllib.request.urlopen(request, timeout=60).read()
"""


@pytest.fixture(scope="module")
def token(aws: Aws) -> str:
    return aws.function("maker", SOURCE)


class Thing:
    """A stack with one custom resource and a record of what its function was asked."""

    def __init__(self, aws: Aws, token: str, name: str, record: Path) -> None:
        self.stack, self.token, self.record = StackDriver(aws, name), token, record

    def resources(self, name: str, behave: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        properties = {
            "ServiceToken": self.token,
            "Record": str(self.record),
            "Name": name,
            "Count": 3,
            "Deep": {"Flag": True},
            "Behave": json.dumps(behave or {}),
        }
        return {"Thing": {"Type": "Custom::Thing", "Properties": properties | more}}

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    def types(self) -> list[tuple[str, str | None]]:
        return [(event["RequestType"], event.get("PhysicalResourceId")) for event in self.asked()]


@pytest.fixture
def thing(aws: Aws, token: str, tmp_path: Path, request: pytest.FixtureRequest) -> Thing:
    name = request.node.name.replace("_", "-")[:60].strip("-[]")
    return Thing(aws, token, name, tmp_path / "record")


OUTPUTS = {"Outputs": {"Id": {"Value": {"Ref": "Thing"}}, "Length": {"Value": {"Fn::GetAtt": ["Thing", "Length"]}}}}


def test_create_update_delete(thing: Thing) -> None:
    stack = thing.stack
    assert stack.create(thing.resources("ab"), **OUTPUTS) == "CREATE_COMPLETE", stack.reasons()
    assert stack.outputs() == {"Id": "thing-ab", "Length": "2"}
    assert stack.update(thing.resources("ab", Count=4), **OUTPUTS) == "UPDATE_COMPLETE"
    assert stack.delete() == "DELETE_COMPLETE"
    assert thing.types() == [("Create", None), ("Update", "thing-ab"), ("Delete", "thing-ab")]
    create, update, _ = thing.asked()
    assert create["ResourceType"] == "Custom::Thing"
    assert create["LogicalResourceId"] == "Thing"
    assert create["ResourceProperties"]["Count"] == "3"
    assert create["ResourceProperties"]["Deep"] == {"Flag": "true"}
    assert update["ResourceProperties"]["Count"] == "4"
    assert update["OldResourceProperties"]["Count"] == "3"


def test_another_id_is_a_replacement(thing: Thing) -> None:
    stack = thing.stack
    assert stack.create(thing.resources("a"), **OUTPUTS) == "CREATE_COMPLETE"
    assert stack.update(thing.resources("bcd"), **OUTPUTS) == "UPDATE_COMPLETE"
    assert stack.outputs() == {"Id": "thing-bcd", "Length": "3"}
    assert thing.types() == [("Create", None), ("Update", "thing-a"), ("Delete", "thing-a")]
    assert thing.asked()[-1]["ResourceProperties"]["Name"] == "a"


def test_a_failed_creation_is_deleted_by_the_id_it_gave(thing: Thing) -> None:
    behave = {"Create": {"Status": "FAILED", "Reason": "no luck"}}
    assert thing.stack.create(thing.resources("x", behave)) == "ROLLBACK_COMPLETE"
    assert "no luck" in thing.stack.reasons()
    assert thing.types() == [("Create", None), ("Delete", "thing-x")]


def test_another_resource_s_failure_deletes_it(thing: Thing) -> None:
    resources = thing.resources("x") | {"Bad": BROKEN_QUEUE | {"DependsOn": "Thing"}}
    assert thing.stack.create(resources) == "ROLLBACK_COMPLETE"
    assert thing.types() == [("Create", None), ("Delete", "thing-x")]


def test_a_failed_update_is_undone_by_an_update(thing: Thing) -> None:
    stack = thing.stack
    assert stack.create(thing.resources("x"), **OUTPUTS) == "CREATE_COMPLETE"
    failing = thing.resources("x", {"Update": {"Status": "FAILED", "Reason": "not now"}}, Count=9)
    assert stack.update(failing, **OUTPUTS) == "UPDATE_ROLLBACK_COMPLETE"
    assert thing.types() == [("Create", None), ("Update", "thing-x"), ("Update", "thing-x")]
    assert thing.asked()[-1]["ResourceProperties"]["Count"] == "3"


def test_a_replacement_is_undone(thing: Thing) -> None:
    """The new thing is deleted, the old one stays."""
    stack = thing.stack
    assert stack.create(thing.resources("old"), **OUTPUTS) == "CREATE_COMPLETE"
    resources = thing.resources("new") | {"Bad": BROKEN_QUEUE | {"DependsOn": "Thing"}}
    assert stack.update(resources, **OUTPUTS) == "UPDATE_ROLLBACK_COMPLETE"
    assert stack.outputs()["Id"] == "thing-old"
    assert thing.types() == [
        ("Create", None),
        ("Update", "thing-old"),
        ("Update", "thing-new"),
        ("Delete", "thing-new"),
    ]


def test_silence_ends_with_the_service_timeout(thing: Thing) -> None:
    """The deletion that follows is answered, which has to be in time."""
    behave = {"Create": "silence"}
    assert thing.stack.create(thing.resources("x", behave, ServiceTimeout="15")) == "ROLLBACK_COMPLETE"
    assert "did not receive a response from your Custom Resource" in thing.stack.reasons()
    kind, identity = thing.types()[-1]
    assert kind == "Delete"
    assert "Thing" in str(identity)


def test_a_failed_deletion_is_a_failed_stack(thing: Thing) -> None:
    behave = {"Delete": {"Status": "FAILED", "Reason": "still in use"}}
    assert thing.stack.create(thing.resources("x", behave)) == "CREATE_COMPLETE"
    assert thing.stack.delete() == "DELETE_FAILED"
    assert "still in use" in thing.stack.reasons()
