"""EKS's webhook for Pod Identity: what an admitted pod is told, and what a pod without association is not."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from local.kubernetes import addons
from local.kubernetes.control_plane import ControlPlane
from local.kubernetes.pod_identity_webhook import (
    CREDENTIALS_URI,
    TOKEN_FILE,
    Associations,
    mutation,
    review_admission,
)
from local.ports import Ports
from local.processes import Processes
from tests.local.aws.serverless import eventually
from tests.local.conftest import FakeControlApi


def review(pod: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "namespace": "kube-system", "object": pod}}


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main"}], **spec}}


def test_a_pod_of_an_associated_service_account_is_told_of_the_agent_and_given_a_token() -> None:
    asked: list[tuple[str, str]] = []

    def associated(namespace: str, account: str) -> bool:
        asked.append((namespace, account))
        return True

    response = review_admission(review(pod(serviceAccountName="forwarder")), associated)
    assert asked == [("kube-system", "forwarder")]
    steps = {step["path"]: step for step in json.loads(base64.b64decode(response["patch"]))}
    assert {entry["name"] for entry in steps["/spec/containers/0/env"]["value"]} == {CREDENTIALS_URI, TOKEN_FILE}
    (volume,) = steps["/spec/volumes"]["value"]
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "pods.eks.amazonaws.com"
    assert steps["/spec/containers/0/volumeMounts"]["value"][0]["name"] == volume["name"]


def test_another_pod_is_admitted_as_it_is() -> None:
    assert review_admission(review(pod()), lambda _namespace, _account: False) == {"uid": "1", "allowed": True}


def test_what_a_pod_says_itself_stays() -> None:
    own = {"name": CREDENTIALS_URI, "value": "http://elsewhere"}
    container = {"name": "main", "env": [own], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    told = pod(containers=[container], initContainers=[{"name": "first"}], volumes=[{"name": "data"}])
    steps = {step["path"]: step for step in mutation(told)}
    assert [entry["name"] for entry in steps["/spec/containers/0/env"]["value"]] == [CREDENTIALS_URI, TOKEN_FILE]
    assert steps["/spec/containers/0/env"]["value"][0] == own
    assert len(steps["/spec/volumes"]["value"]) == len(steps["/spec/containers/0/volumeMounts"]["value"]) == 2
    assert "/spec/initContainers/0/env" in steps


def test_while_aws_does_not_answer_a_pod_is_told_nothing(control_api: FakeControlApi) -> None:
    path = "/_local/podidentity/associated"
    associated = Associations(control_api.endpoint, "dev")
    control_api.replies.pop(path, None)
    assert not associated("default", "default")
    control_api.replies[path] = {"associated": True}
    assert associated("default", "default")
    assert not Associations("http://127.0.0.1:1", "dev")("default", "default")


@pytest.fixture
def webhook(
    plane: ControlPlane, control_api: FakeControlApi, environment: dict[str, str], tmp_path: Path
) -> Iterator[None]:
    """The webhook beside the control plane, as the stack starts it."""
    ports = Ports()
    port, pair = ports.take(), plane.authority.issue_server_certificate("pod-identity-webhook", ["127.0.0.1"])
    command = [sys.executable, "-m", "local.kubernetes.pod_identity_webhook", "--port", str(port), "--cluster", "dev"]
    command += ["--aws", control_api.endpoint, "--certificate", str(pair.certificate), "--key", str(pair.key)]
    text = (addons.MANIFESTS / "pod-identity.yaml").read_text()
    values = {"podIdentityPort": str(port), "authority": plane.certificate_authority}
    manifest = yaml.safe_load(Template(text).substitute(values))
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    with Processes(tmp_path) as processes:
        processes.start("webhook", command, environment=environment)
        plane.api.create(path, manifest)
        yield
        plane.api.delete(f"{path}/pod-identity-webhook")
    ports.close()


def test_the_api_server_tells_pods_that_are_admitted_after_the_association(
    plane: ControlPlane, control_api: FakeControlApi, webhook: None
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    metadata = {"generateName": "told-", "namespace": "default"}
    spec = {"containers": [{"name": "main", "image": "example.com/app"}]}
    control_api.replies["/_local/podidentity/associated"] = {"associated": True}

    def variables(pod: dict[str, Any]) -> set[str]:
        return {entry["name"] for entry in pod["spec"]["containers"][0].get("env") or ()}

    def admitted() -> dict[str, Any]:
        return plane.api.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    # The process takes a moment to listen, and the API server one to learn of the configuration.
    eventually(lambda: CREDENTIALS_URI in variables(admitted()))
    control_api.replies["/_local/podidentity/associated"] = {"associated": False}
    early = admitted()
    control_api.replies["/_local/podidentity/associated"] = {"associated": True}
    # A pod is made without it, too, when the process does not answer in time.
    eventually(lambda: variables(admitted()) == {CREDENTIALS_URI, TOKEN_FILE})
    assert variables(plane.api.get(f"{pods}/{early['metadata']['name']}")) == set()
    for pod in plane.api.get(pods)["items"]:
        plane.api.delete(f"{pods}/{pod['metadata']['name']}")
