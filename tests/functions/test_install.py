"""The custom resource: what it applies, what it leaves alone, and that it always answers."""

import copy
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from spotwright import manifests
from spotwright.adapters.apply import ObjectApi, path_of
from spotwright.adapters.bucket_contents import empty_bucket
from spotwright.adapters.connection import token_configuration
from spotwright.failures import Denied, InvalidRequest, NotFound, Unavailable
from spotwright.workflows.install import INSTALLERS, Installation, Removal, install, remove, taken_over
from tests.manifests.cluster import Cluster, running_cluster, wanted
from tests.manifests.samples import SAMPLES, Object, changed

ROOT = Path(__file__).parents[2]
ROLE = "arn:aws:iam::123456789012:role/install"


@dataclass
class Patience:
    """Time that passes only by waiting."""

    seconds: float = 60.0

    def remaining_seconds(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.seconds -= seconds


@dataclass
class Waiting(Patience):
    """Real time, for real clusters."""

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        time.sleep(0.1)


@dataclass
class Access:
    """Opens a cluster that is there already."""

    objects: Any
    opened: int = 0
    closed: int = 0
    refused: Exception | None = None

    def open(self) -> Any:
        self.opened += 1
        if self.refused:
            raise self.refused
        return self.objects

    def close(self) -> None:
        self.closed += 1


@dataclass
class Objects:
    """An API server in memory; ``failures`` are raised first, one per call. CRDs are established at once."""

    live: dict[str, Object] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    names_taken: bool = False

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def read(self, document: Any, /) -> Object | None:
        self._fail()
        return copy.deepcopy(self.live.get(path_of(document)))

    def apply(self, document: Any, /) -> Object:
        self._fail()
        live = copy.deepcopy(dict(document))
        live["metadata"] = {"uid": f"uid-of-{path_of(document)}", **live["metadata"]}
        type_ = "NamesAccepted" if self.names_taken else "Established"
        status = "False" if self.names_taken else "True"
        live["status"] = {"conditions": [{"type": type_, "status": status, "message": "taken"}]}
        self.live[path_of(document)] = live
        return live

    def merge(self, document: Any, change: Any, /) -> Object:
        self._fail()
        live = self.live[path_of(document)]
        live["metadata"].setdefault("annotations", {}).update(change["metadata"]["annotations"])
        return live

    def delete(self, document: Any, /) -> None:
        self._fail()
        self.deleted.append(document["kind"])
        del self.live[path_of(document)]


def test_everything_is_applied_definitions_first_and_access_is_given_back() -> None:
    objects = Objects()
    access = Access(objects)
    applied = install(access, wanted(), Patience())
    kinds = [name.split("/")[0] for name in applied]
    assert kinds[:3] == ["CustomResourceDefinition"] * 3
    assert kinds[-1] == "Deployment"
    assert len(objects.live) == len(applied)
    assert access.closed == 1


def test_a_second_install_changes_nothing() -> None:
    objects = Objects()
    install(Access(objects), wanted(), Patience())
    before = copy.deepcopy(objects.live)
    install(Access(objects), wanted(), Patience())
    assert objects.live == before


def test_access_that_takes_effect_late_is_waited_for() -> None:
    objects = Objects(failures=[Denied("401")] * 5 + [Unavailable("no answer")])
    patience = Patience(60)
    install(Access(objects), wanted(), patience)
    assert patience.seconds == 60 - 6 * 2


def test_access_that_never_takes_effect_fails_in_time_and_is_given_back() -> None:
    access = Access(Objects(failures=[Denied("403")] * 100))
    with pytest.raises(Denied):
        install(access, wanted(), Patience(10))
    assert access.closed == 1


def test_access_is_given_back_when_opening_it_fails_half_way() -> None:
    access = Access(Objects(), refused=Unavailable("EKS"))
    with pytest.raises(Unavailable):
        install(access, wanted(), Patience())
    assert access.closed == 1


def test_names_that_another_definition_holds_are_reported() -> None:
    with pytest.raises(InvalidRequest, match="taken"):
        install(Access(Objects(names_taken=True)), wanted(), Patience())


def test_versions_of_an_older_installation_stay_served() -> None:
    ours = manifests.definitions()[0]
    old = {"name": "v1beta1", "served": True, "storage": True, "schema": {}}
    live = {"spec": {"versions": [old, {"name": "v1", "served": True, "storage": False}]}}
    versions = taken_over(live, ours)["spec"]["versions"]
    assert [(one["name"], one["served"], one["storage"]) for one in versions] == [
        ("v1", True, True),
        ("v1beta1", True, False),
    ]
    assert taken_over(None, ours) == ours


def test_removal_takes_the_parts_and_nothing_else() -> None:
    objects = Objects()
    install(Access(objects), wanted(), Patience())
    removal = remove(Access(objects), wanted(), Patience())
    assert removal.gave_up == ""
    assert set(objects.deleted) == {"Deployment", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    assert {one["kind"] for one in objects.live.values()} == {"CustomResourceDefinition"}
    assert remove(Access(objects), wanted(), Patience()).gave_up == ""


def test_the_delete_of_a_renamed_resource_takes_nothing_from_the_new_one() -> None:
    objects = Objects()
    install(Access(objects), wanted("old"), Patience())
    install(Access(objects), wanted("new"), Patience())
    removal = remove(Access(objects), wanted("old"), Patience())
    assert removal.deleted == ()
    assert {
        one["metadata"]["annotations"][INSTALLERS] for one in objects.live.values() if one["kind"] == "Deployment"
    } == {"new"}
    assert remove(Access(objects), wanted("old"), Patience()).deleted == ()
    assert "Deployment/spotwright-forwarder" in remove(Access(objects), wanted("new"), Patience()).deleted


def test_the_rollback_of_a_second_installer_takes_nothing_from_the_first() -> None:
    objects = Objects()
    install(Access(objects), wanted("first"), Patience())
    install(Access(objects), wanted("second"), Patience())
    assert remove(Access(objects), wanted("second"), Patience()).deleted == ()
    assert len(objects.live) == len(wanted().parts) + 3


@pytest.mark.parametrize("refused", [NotFound("no such cluster"), Unavailable("EKS"), Denied("not allowed")])
def test_removal_succeeds_when_the_cluster_is_out_of_reach(refused: Exception) -> None:
    access = Access(Objects(), refused=refused)
    assert remove(access, wanted(), Patience()).gave_up
    assert access.closed == 1


def test_removal_from_a_silent_cluster_ends_in_bounded_time() -> None:
    patience = Patience(20)
    removal = remove(Access(Objects(failures=[Unavailable("silence")] * 100)), wanted(), patience)
    assert removal == Removal((), (), "silence")
    assert patience.seconds > 0


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return running_cluster()


def test_a_real_api_server_takes_everything_and_loses_no_claim_by_any_delete(cluster: Cluster) -> None:
    install(Access(cluster.objects), wanted("old"), Waiting())
    claims = [changed(SAMPLES["NodeClaim"](), "metadata.name", f"alive-{n}") for n in range(3)]
    others = [changed(SAMPLES[kind](), "metadata.name", "alive") for kind in ("NodePool", "EC2NodeClass")]
    for one in [*claims, *others]:
        cluster.objects.apply(one)
    install(Access(cluster.objects), wanted("new", "forwarder:next"), Waiting())
    remove(Access(cluster.objects), wanted("old"), Waiting())
    deployment = wanted().parts[-1]
    live = cluster.objects.read(dict(deployment))
    assert live is not None
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "forwarder:next"
    removal = remove(Access(cluster.objects), wanted("new"), Waiting())
    assert removal.gave_up == ""
    assert all(cluster.objects.read(dict(part)) is None for part in wanted().parts)
    for one in [*claims, *others]:
        kept = cluster.objects.read(one)
        assert kept is not None
        assert "deletionTimestamp" not in kept["metadata"]
    assert all(cluster.objects.read(dict(one)) is not None for one in manifests.definitions())


def test_a_definition_of_karpenters_chart_is_taken_over(cluster: Cluster) -> None:
    """A chart's definition: another field manager, an older stored version, labels of its own."""
    cluster.objects.delete(manifests.definitions()[0])
    ours = copy.deepcopy(manifests.definitions()[0])
    version = ours["spec"]["versions"][0]
    bare = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    old = {**version, "name": "v1beta1", "schema": {"openAPIV3Schema": bare}}
    ours["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    ours["spec"]["versions"] = [{**version, "storage": False}, old]
    _apply_when_gone(cluster.objects, ours)
    pool = changed(changed(SAMPLES["NodePool"](), "apiVersion", "karpenter.sh/v1beta1"), "metadata.name", "chart")
    _eventually(lambda: cluster.objects.apply(pool))
    install(Access(cluster.objects), wanted(), Waiting())
    live = cluster.objects.read(manifests.definitions()[0])
    assert live is not None
    assert [(one["name"], one["served"], one["storage"]) for one in live["spec"]["versions"]] == [
        ("v1", True, True),
        ("v1beta1", True, False),
    ]
    kept = cluster.objects.read(changed(SAMPLES["NodePool"](), "metadata.name", "chart"))
    assert kept is not None
    assert kept["apiVersion"] == "karpenter.sh/v1"
    cluster.objects.delete(manifests.definitions()[0])
    _apply_when_gone(cluster.objects, manifests.definitions()[0])


def _apply_when_gone(objects: ObjectApi, document: Object) -> None:
    def gone() -> None:
        assert objects.read(document) is None

    _eventually(gone)
    objects.apply(document, manager="helm")


def _eventually(act: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            act()
        except (AssertionError, NotFound):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


def test_an_api_server_that_is_not_there_is_unavailable_after_bounded_attempts() -> None:
    waited: list[float] = []
    configuration = token_configuration("https://127.0.0.1:9", "", lambda: "token")
    objects = ObjectApi(configuration, attempts=3, pause=waited.append)
    with pytest.raises(Unavailable):
        objects.read(SAMPLES["NodePool"]())
    assert len(waited) == 2


# The handler, with a cluster in memory and the answers collected by a small server.


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
    monkeypatch.setattr(module, "Patience", lambda seconds: Patience(seconds))
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


def use(function: ModuleType, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(event: Mapping[str, Any]) -> Access:
        return access

    monkeypatch.setattr(function, "_access", opened)


def test_create_update_and_delete_answer_with_one_physical_id(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = Objects()
    use(function, Access(objects), monkeypatch)
    for kind in ("Create", "Update", "Update", "Delete", "Delete"):
        function.handler(request(answers, kind), Context())
    assert [(one["Status"], one["PhysicalResourceId"]) for one in answers.bodies] == [
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
    assert [one["Status"] for one in answers.bodies] == ["SUCCESS", "SUCCESS"]
    assert answers.bodies[0]["PhysicalResourceId"] == "2026/11/21/[$LATEST]abc"


def test_a_request_for_somebody_else_is_answered_too(function: ModuleType, answers: Answers) -> None:
    function.handler(request(answers, "Create", ResourceType="Custom::Other"), Context())
    function.handler(request(answers, "Create", ResourceProperties={}), Context())
    assert [one["Status"] for one in answers.bodies] == ["FAILED", "FAILED"]


def test_an_answer_that_is_not_taken_is_repeated(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(function, Access(Objects()), monkeypatch)
    answers.refuse = 2
    function.handler(request(answers, "Create"), Context())
    assert [one["Status"] for one in answers.bodies] == ["SUCCESS"]


def test_work_that_takes_too_long_is_answered_before_the_function_ends(
    function: ModuleType, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, "LAST_SECONDS", 0.0)

    class Stuck(Access):
        def open(self) -> Any:
            time.sleep(1.5)
            return super().open()

    use(function, Stuck(Objects()), monkeypatch)
    function.handler(request(answers, "Create"), Context(milliseconds=1000))
    (answer,) = answers.bodies
    assert answer["Status"] == "FAILED"
    assert "out of time" in answer["Reason"]


def test_installers_differ_by_stack_and_logical_id(function: ModuleType, answers: Answers) -> None:
    def installer(**more: Any) -> str:
        made: Installation = function._installation(request(answers, "Create", **more))
        return made.installer

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
    monkeypatch.setattr(function.aws_sessions, "client", lambda service: None)
    more = {"ResourceType": "Custom::SpotwrightBucketContents", "ResourceProperties": {"Bucket": "b"}}
    for kind in ("Create", "Update"):
        function.handler(request(answers, kind, **more), Context())
    assert emptied == []
    function.handler(request(answers, "Delete", **more), Context())
    assert emptied == ["b"]
    assert [one["Status"] for one in answers.bodies] == ["SUCCESS"] * 3


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
