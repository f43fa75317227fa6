"""The custom resources' handler always answers: a cluster in memory, the answers collected by a small server."""

import importlib.util
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from spotwright.adapters.aws.s3.bucket_contents import empty_bucket
from spotwright.errors import Denied, NotFound
from spotwright.workflows.install.preflight.facts import Addon, ClusterDescription, NotAsked, Role
from spotwright.workflows.install.workflow import Installation
from tests.functions.install.fakes import Access, Deadline, Nodes, Objects
from tests.local.aws.serverless import eventually
from tests.manifests.samples import SAMPLES, changed

ROOT = Path(__file__).parents[3]
ROLE = "arn:aws:iam::123456789012:role/install"


@dataclass
class Answers:
    url: str
    bodies: list[dict[str, Any]]
    content_types: list[str | None]
    refuse: int = 0


@pytest.fixture
def answers() -> Iterator[Answers]:
    collected = Answers("", [], [])

    class Collect(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = 200
            if collected.refuse:
                collected.refuse, status = collected.refuse - 1, 503
            else:
                collected.bodies.append(json.loads(body))
                collected.content_types.append(self.headers["Content-Type"])
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collect)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    collected.url = f"http://127.0.0.1:{server.server_address[1]}/answer?signature=x"
    yield collected
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("install_handler", ROOT / "functions/install/handler.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "Deadline", lambda seconds: Deadline(seconds))
    return module


@dataclass
class Context:
    milliseconds: int = 300_000
    function_name: str = "install"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:ap-northeast-2:123456789012:function:install"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds


def request(answers: Answers, kind: str, **more: Any) -> dict[str, Any]:
    properties = {
        "Cluster": "dev",
        "RoleArn": ROLE,
        "ForwarderImage": "forwarder:1",
        "ForwarderEnvironment": {"CLUSTER_NAME": "dev"},
        "ManifestsDigest": "x",
    }
    event = {
        "RequestType": kind,
        "ResourceType": "Custom::SpotwrightInstall",
        "ResponseURL": answers.url,
        "StackId": "arn:aws:cloudformation:ap-northeast-2:123456789012:stack/Spotwright-main/1",
        "RequestId": "r",
        "LogicalResourceId": "Install",
        "ResourceProperties": properties,
    }
    if kind != "Create":
        event["PhysicalResourceId"] = "spotwright-install-dev"
    return {**event, **more}


def use(function: ModuleType, access: Access, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    def opened(event: Mapping[str, Any], cluster: str) -> Access:
        return access

    nodes = Nodes()
    monkeypatch.setattr(function, "_access", opened)
    monkeypatch.setattr(function, "_nodes", lambda event: nodes)
    return nodes


def test_the_forwarder_keeps_to_the_nodes_that_its_image_is_for(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    event = request(answers, "Create")
    event["ResourceProperties"]["ForwarderArchitecture"] = "arm64"
    function.handler(event, Context())
    (deployment,) = [live for live in objects.live.values() if live["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {
        "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
    }  # fmt: skip
    function.handler(request(answers, "Update"), Context())
    assert [body["Status"] for body in answers.bodies] == ["SUCCESS"] * 2


def test_create_update_and_delete_answer_with_one_physical_id(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    for kind in ("Create", "Update", "Update", "Delete", "Delete"):
        function.handler(request(answers, kind), Context())
    assert [(body["Status"], body["PhysicalResourceId"]) for body in answers.bodies] == [
        ("SUCCESS", "spotwright-install-dev")
    ] * 5
    assert set(answers.content_types) <= {"", None}
    assert {one["kind"] for one in objects.live.values()} == {"CustomResourceDefinition"}
    echoed = {key: answers.bodies[0][key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    assert echoed == {key: request(answers, "Create")[key] for key in echoed}


def test_the_image_and_environment_reach_the_deployment(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    function.handler(request(answers, "Create"), Context())
    (deployment,) = [one for one in objects.live.values() if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "forwarder:1"
    assert {"name": "CLUSTER_NAME", "value": "dev"} in container["env"]


def look(answers: Answers, kind: str = "Create", **more: Any) -> dict[str, Any]:
    properties = {"Cluster": "dev", "NodeRoles": ["nodes"], "WindowsNodeRoles": [], "VpcId": "", "SkipChecks": []}
    event = request(answers, kind, ResourceType="Custom::SpotwrightPreflight", ResourceProperties=properties | more)
    return event | ({"PhysicalResourceId": "spotwright-preflight-dev"} if kind != "Create" else {})


@pytest.fixture
def eks(function: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What AWS says of the cluster dev: changed by tests."""
    role = Role(frozenset({"ec2.amazonaws.com"}), frozenset({"AmazonEKSWorkerNodePolicy"}), has_other_policies=True)
    said: dict[str, Any] = {
        "describe": ClusterDescription("ACTIVE", "1.35", "API"),
        "cluster_names": ("other",),
        "role": role,
        "addons": {"eks-pod-identity-agent": Addon()},
    }
    for name in said:
        module = function.node_roles if name == "role" else function.readiness
        monkeypatch.setattr(module, name, lambda *_, name=name: said[name])
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    return said


def test_a_cluster_that_is_ready_is_looked_at_and_nothing_else(
    function: ModuleType, answers: Answers, eks: dict[str, Any]
) -> None:
    for kind in ("Create", "Update", "Delete"):
        function.handler(look(answers, kind), Context())
    assert [(body["Status"], body["PhysicalResourceId"]) for body in answers.bodies] == [
        ("SUCCESS", "spotwright-preflight-dev")
    ] * 3


def test_every_problem_of_a_cluster_fails_the_deployment_before_it_begins(
    function: ModuleType, answers: Answers, eks: dict[str, Any]
) -> None:
    eks["describe"] = ClusterDescription("ACTIVE", "1.35", "CONFIG_MAP")
    eks["addons"] = {}
    function.handler(look(answers), Context())
    function.handler(look(answers, SkipChecks=["pod-identity", "authentication-mode"]), Context())
    assert [body["Status"] for body in answers.bodies] == ["FAILED", "SUCCESS"]
    reason = answers.bodies[0]["Reason"]
    for part in ("cluster dev is not ready", "authenticationMode=API_AND_CONFIG_MAP", "create-addon"):
        assert part in reason
    eks["describe"] = None
    function.handler(look(answers), Context())
    assert "EKS has no cluster dev in eu-west-1" in answers.bodies[2]["Reason"]


def test_new_rights_are_waited_for_and_what_stays_unknown_fails_nothing(
    function: ModuleType, answers: Answers, eks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [NotAsked("denied"), NotAsked("denied")]
    known = eks["describe"]
    monkeypatch.setattr(function.readiness, "describe", lambda *_: refusals.pop() if refusals else known)
    eks["role"] = None
    function.handler(look(answers), Context())
    assert answers.bodies[0]["Status"] == "FAILED"
    assert "node role nodes does not exist" in answers.bodies[0]["Reason"]
    monkeypatch.setattr(function.readiness, "describe", lambda *_: NotAsked("denied"))
    function.handler(look(answers), Context())
    assert answers.bodies[1]["Status"] == "SUCCESS"


def test_what_a_skipped_check_looks_at_is_not_waited_for(
    function: ModuleType, answers: Answers, eks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a VPC without a way to the internet IAM does not answer, and every question takes its time."""
    asked: list[str] = []

    def silent(name: str) -> NotAsked:
        asked.append(name)
        return NotAsked("no answer")

    for module, name in ((function.node_roles, "role"), (function.readiness, "addons")):
        monkeypatch.setattr(module, name, lambda *_, name=name: silent(name))
    function.handler(look(answers, SkipChecks=["node-roles", "pod-identity"]), Context())
    assert (answers.bodies[0]["Status"], asked) == ("SUCCESS", [])


NODE_ROLE = "arn:aws:iam::123456789012:role/nodes"


def updated(answers: Answers, new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    event = request(answers, "Update")
    properties = event["ResourceProperties"]
    return {**event, "ResourceProperties": properties | new, "OldResourceProperties": properties | old}


def test_an_update_that_would_take_the_nodes_entries_with_it_is_refused_before_anything_is_done(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation deletes what left the template last of all: nobody could make the entries again."""
    access = Access(Objects())
    nodes = use(function, access, monkeypatch)
    roles = {"NodeRoles": [{"Arn": NODE_ROLE, "Type": "EC2_LINUX"}]}
    retained = {"NodeEntries": "retained"}
    function.handler(updated(answers, roles, {}), Context())
    assert (access.opened, nodes.entries) == (0, {})
    function.handler(updated(answers, retained, {}), Context())
    assert nodes.entries == {}
    function.handler(updated(answers, roles, retained), Context())
    assert set(nodes.entries) == {NODE_ROLE}
    function.handler(updated(answers, roles, roles), Context())
    # The rollback of a refused update is an update too.
    function.handler(updated(answers, {}, roles), Context())
    assert [body["Status"] for body in answers.bodies] == ["FAILED", *["SUCCESS"] * 4]
    for part in ("cluster dev", "retainNodeEntries", "cdk.json", "deploy"):
        assert part in answers.bodies[0]["Reason"]


def test_a_failure_is_answered_with_its_reason(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(function, Access(Objects(), refused=NotFound("no cluster dev")), monkeypatch)
    function.handler(request(answers, "Create"), Context())
    (answer,) = answers.bodies
    assert answer["Status"] == "FAILED"
    assert "no cluster dev" in answer["Reason"]


def test_the_delete_after_a_failed_create_succeeds(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(function, Access(Objects(), refused=NotFound("no cluster dev")), monkeypatch)
    function.handler(request(answers, "Delete", PhysicalResourceId="2026/11/21/[$LATEST]abc"), Context())
    bare = request(answers, "Delete", ResourceProperties={})
    function.handler(bare, Context())
    assert [body["Status"] for body in answers.bodies] == ["SUCCESS", "SUCCESS"]
    assert answers.bodies[0]["PhysicalResourceId"] == "2026/11/21/[$LATEST]abc"


def test_a_request_for_somebody_else_is_answered_too(function: ModuleType, answers: Answers) -> None:
    function.handler(request(answers, "Create", ResourceType="Custom::Other"), Context())
    function.handler(request(answers, "Create", ResourceProperties={}), Context())
    assert [body["Status"] for body in answers.bodies] == ["FAILED", "FAILED"]


def test_an_answer_that_is_not_taken_is_repeated(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(function, Access(Objects()), monkeypatch)
    answers.refuse = 2
    function.handler(request(answers, "Create"), Context())
    assert [body["Status"] for body in answers.bodies] == ["SUCCESS"]


def test_work_that_takes_too_long_is_answered_before_the_function_ends(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, "LAST_SECONDS", 0.0)

    class Stuck(Access):
        def open(self) -> Any:
            """Goes on when somebody else has answered."""
            eventually(lambda: answers.bodies)
            return super().open()

    use(function, Stuck(Objects()), monkeypatch)
    function.handler(request(answers, "Create"), Context(milliseconds=1000))
    (answer,) = answers.bodies
    assert answer["Status"] == "FAILED"
    assert "out of time" in answer["Reason"]


def test_installers_differ_by_stack_and_logical_id(function: ModuleType, answers: Answers) -> None:
    def installer(**more: Any) -> str:
        installation: Installation = function._installation(request(answers, "Create", **more))
        return installation.installer

    assert installer() == installer()
    assert len({installer(), installer(LogicalResourceId="Other"), installer(StackId="other")}) == 3


def test_bucket_contents_are_left_alone_but_for_a_delete(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[str] = []

    def empty(s3: object, bucket: str, remaining_seconds: Callable[[], float]) -> bool:
        emptied.append(bucket)
        return True

    monkeypatch.setattr(function, "empty_bucket", empty)
    monkeypatch.setattr(function.clients, "client", lambda service: None)
    more = {"ResourceType": "Custom::SpotwrightBucketContents", "ResourceProperties": {"Bucket": "b"}}
    for kind in ("Create", "Update"):
        function.handler(request(answers, kind, **more), Context())
    assert emptied == []
    function.handler(request(answers, "Delete", **more), Context())
    assert emptied == ["b"]
    assert [body["Status"] for body in answers.bodies] == ["SUCCESS"] * 3


@pytest.fixture
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    yield boto3.client(
        "s3", region_name="us-east-1", endpoint_url=endpoint, aws_access_key_id="x", aws_secret_access_key="y"
    )
    server.stop()


def test_a_bucket_is_emptied_of_every_version_and_marker(s3: Any) -> None:
    s3.create_bucket(Bucket="emptied")
    s3.put_bucket_versioning(Bucket="emptied", VersioningConfiguration={"Status": "Enabled"})
    for number in range(5):
        s3.put_object(Bucket="emptied", Key=f"k{number % 2}", Body=b"x")
    s3.delete_object(Bucket="emptied", Key="k0")
    assert empty_bucket(s3, "emptied", lambda: 0.0) is False
    assert empty_bucket(s3, "emptied", lambda: 60.0) is True
    left = s3.list_object_versions(Bucket="emptied")
    assert not left.get("Versions")
    assert not left.get("DeleteMarkers")
    s3.delete_bucket(Bucket="emptied")
    assert empty_bucket(s3, "emptied", lambda: 60.0) is True


def test_a_deletion_fails_once_while_claims_are_left_and_never_for_a_cluster_that_does_not_answer(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    installed = request(answers, "Create")
    installed["ResourceProperties"]["ForwarderEnvironment"]["SPOTWRIGHT_CELL"] = "main"
    function.handler(installed, Context())
    objects.apply(changed(SAMPLES["NodeClaim"](), "metadata.name", "alive"))
    guard = {
        "ResourceType": "Custom::SpotwrightNodesLeft",
        "PhysicalResourceId": "spotwright-nodes-left-dev",
        "ResourceProperties": {"Cluster": "dev", "Cell": "main", "RoleArn": ROLE},
    }
    for number, kind in enumerate(("Create", "Delete", "Delete")):
        function.handler(request(answers, kind, **guard, RequestId=f"r{number}"), Context())
    # The second once more, as Lambda delivers an event whose function died: what it said is said again.
    function.handler(request(answers, "Delete", **guard, RequestId="r1"), Context())
    objects.failures = [Denied("403")] * 100
    function.handler(request(answers, "Delete", **guard), Context())
    said = answers.bodies[1:]
    assert [body["Status"] for body in said] == ["SUCCESS", "FAILED", "SUCCESS", "FAILED", "SUCCESS"]
    assert "cluster dev has 1 NodeClaim (alive)" in said[1]["Reason"]
    assert {body["PhysicalResourceId"] for body in said} == {"spotwright-nodes-left-dev"}


def leaving(status: str, monkeypatch: pytest.MonkeyPatch, function: ModuleType) -> dict[str, Any]:
    """The update by which `dev` leaves a stack of three clusters, whose status CloudFormation gives."""

    def describe_stacks(StackName: str) -> dict[str, Any]:
        assert "stack/Spotwright-main" in StackName
        if status == "denied":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeStacks")
        return {"Stacks": [{"StackStatus": status}]}

    client = SimpleNamespace(describe_stacks=describe_stacks)
    monkeypatch.setattr(function.clients, "client", lambda service: {"cloudformation": client}[service])
    common = {"Cell": "main", "RoleArn": ROLE}
    return {
        "ResourceType": "Custom::SpotwrightClusters",
        "PhysicalResourceId": "spotwright-clusters",
        "ResourceProperties": {"Clusters": ["new", "other"], **common},
        "OldResourceProperties": {"Clusters": ["other", "dev"], **common},
    }


def test_an_update_by_which_a_cluster_leaves_fails_once_while_claims_are_left(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    installed = request(answers, "Create")
    installed["ResourceProperties"]["ForwarderEnvironment"]["SPOTWRIGHT_CELL"] = "main"
    function.handler(installed, Context())
    objects.apply(changed(SAMPLES["NodeClaim"](), "metadata.name", "alive"))
    event = leaving("UPDATE_IN_PROGRESS", monkeypatch, function)
    function.handler(request(answers, "Create", **event), Context())
    function.handler(request(answers, "Update", **event, RequestId="1"), Context())
    function.handler(request(answers, "Update", **event, RequestId="2"), Context())
    function.handler(request(answers, "Delete", **event), Context())
    said = answers.bodies[1:]
    assert [body["Status"] for body in said] == ["SUCCESS", "FAILED", "SUCCESS", "SUCCESS"]
    assert said[1]["Reason"].startswith("cluster dev has 1 NodeClaim (alive), and once it has left cdk.json")
    assert {body["PhysicalResourceId"] for body in said} == {"spotwright-clusters"}


def test_clusters_that_leave_share_the_time_that_is_left(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: dict[str, float] = {}

    def look(_event: Any, cluster: str, deadline: Any) -> tuple[str, ...]:
        seconds[cluster] = round(deadline.remaining_seconds())
        return ()

    monkeypatch.setattr(function, "_nodes_left", look)
    event = leaving("UPDATE_IN_PROGRESS", monkeypatch, function)
    event["OldResourceProperties"]["Clusters"] = ["other", "a", "b", "c", "d"]
    for milliseconds in (300_000, 120_000):
        function.handler(request(answers, "Update", **event), Context(milliseconds))
        # A minute is reserved for the answer; no cluster gets more than half a minute.
        assert seconds == dict.fromkeys("abcd", min(30, (milliseconds / 1000 - 60) / 4))


def test_of_clusters_that_leave_one_that_does_not_answer_hides_no_other(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    installed = request(answers, "Create")
    installed["ResourceProperties"]["ForwarderEnvironment"]["SPOTWRIGHT_CELL"] = "main"
    function.handler(installed, Context())
    objects.apply(changed(SAMPLES["NodeClaim"](), "metadata.name", "alive"))
    accesses = {"dev": Access(objects), "away": Access(Objects(), refused=Denied("403"))}
    monkeypatch.setattr(function, "_access", lambda event, cluster: accesses[cluster])
    event = leaving("UPDATE_IN_PROGRESS", monkeypatch, function)
    event["OldResourceProperties"]["Clusters"] = ["other", "dev", "away"]
    # Delivered twice, then deployed again: by then it has been said.
    for number in (1, 1, 2):
        function.handler(request(answers, "Update", **event, RequestId=f"r{number}"), Context())
    said = answers.bodies[1:]
    assert [body["Status"] for body in said] == ["FAILED", "FAILED", "SUCCESS"]
    assert said[0]["Reason"] == said[1]["Reason"]
    assert said[0]["Reason"].startswith("cluster dev has 1 NodeClaim (alive), and once it has left cdk.json")
    assert [access.closed for access in accesses.values()] == [3, 3]


@pytest.mark.parametrize("status", ["UPDATE_ROLLBACK_IN_PROGRESS", "denied"])
def test_an_update_that_is_rolled_back_is_never_refused(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """A cluster that came by it leaves again; nor is one where that is not known, for a roll-back must not fail."""
    access = Access(Objects())
    use(function, access, monkeypatch)
    function.handler(request(answers, "Update", **leaving(status, monkeypatch, function)), Context())
    assert [body["Status"] for body in answers.bodies] == ["SUCCESS"]
    assert access.opened == 0


def test_an_update_by_which_no_cluster_leaves_asks_nobody(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = leaving("unasked", monkeypatch, function)
    event["OldResourceProperties"]["Clusters"] = ["other"]
    monkeypatch.setattr(function.clients, "client", None)
    function.handler(request(answers, "Update", **event), Context())
    assert [body["Status"] for body in answers.bodies] == ["SUCCESS"]
