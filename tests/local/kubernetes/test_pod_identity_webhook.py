"""EKS's webhook for Pod Identity: what an admitted pod is told, and what a pod without association is not."""

import base64
import json
from typing import Any

from local.kubernetes.pod_identity_webhook import (
    CREDENTIALS_URI,
    TOKEN_FILE,
    Associations,
    mutation,
    review_admission,
)
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
