"""Containers of chosen pods run as processes, exactly while their pods run on a node."""

import json
import os
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local.kubernetes.control_plane import ControlPlane
from local.kubernetes.pod_identity_webhook import AGENT, CREDENTIALS_URI
from local.pods.credentials import PodIdentityAgent
from local.pods.runner import PodRunner, RunnerSettings, find_command
from local.processes import Processes
from tests.local.conftest import BootHarness, FakeControlApi, numbered_instance, removed_afterwards

CREDENTIALS = {
    "AccessKeyId": "ASIAPOD",
    "SecretAccessKey": "secret",
    "Token": "session",
    "Expiration": "2099-01-01T00:00:00Z",
}
# What a forwarder does first: log in to Kubernetes and to AWS with nothing but its environment.
LOGIN = """
import json, os, time
import botocore.session
from kubernetes import client, config
config.load_config()
review = client.AuthenticationV1Api().create_self_subject_review({})
credentials = botocore.session.Session().get_credentials()
key = credentials and credentials.access_key
found = {"user": review.status.user_info.username, "key": key, "environ": dict(os.environ)}
with open("found.new", "w") as file:
    json.dump(found, file)
os.rename("found.new", "found.json")
time.sleep(600)
"""
COMMANDS = {
    "login": [sys.executable, "-c", textwrap.dedent(LOGIN)],
    "registry.local/crash": ["/bin/sh", "-c", "exit 3"],
    "stubborn": ["/bin/sh", "-c", "trap '' TERM; while true; do sleep 1; done"],
}


class Played:
    """A runner beside a boot agent, with one Ready node."""

    def __init__(self, boots: BootHarness, runner: PodRunner, directory: Path, logs: Path) -> None:
        self.boots = boots
        self.runner = runner
        self.directory = directory
        self.logs = logs

    def run(self, name: str, image: str, node: str, **spec: Any) -> Path:
        """Create a pod on the node; returns the folder its containers work in."""
        container = {"name": "main", "image": image, **spec}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "forwarder"}},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            },
        }
        self.boots.api.create("/api/v1/namespaces/default/pods", pod)
        return self.directory / f"default_{name}"

    def until(self, holds: Any, seconds: float = 180.0) -> None:
        def stepped() -> object:
            self.runner.reconcile()
            return holds()

        self.boots.wait_until(stepped, seconds)


@pytest.fixture
def played(
    boots: BootHarness, plane: ControlPlane, control_api: FakeControlApi, environment: dict[str, str], tmp_path: Path
) -> Iterator[Played]:
    settings = RunnerSettings(tmp_path / "pods", plane.kubeconfig, "ap-northeast-2", COMMANDS)
    control_api.replies["/_local/tls"] = {"environment": {"AWS_ENDPOINT_URL": "https://127.0.0.1:1"}}
    credentials = PodIdentityAgent(plane.api, control_api.endpoint, "dev")
    thread = threading.Thread(target=credentials.serve_forever, daemon=True)
    thread.start()
    with Processes(tmp_path / "logs") as processes:
        runner = PodRunner(plane.api, settings, processes, credentials)
        yield Played(boots, runner, settings.directory, tmp_path / "logs")
        runner.close()
    credentials.shutdown()
    credentials.server_close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_of(folder: Path) -> int:
    return int(json.loads((folder / "main.json").read_text())["pid"])


def test_a_pod_logs_in_to_kubernetes_and_aws_as_its_service_account(
    played: Played, control_api: FakeControlApi
) -> None:
    """And it ends with the pod."""
    control_api.replies["/_local/podidentity"] = CREDENTIALS
    node = numbered_instance(31)
    played.boots.aws.put(node)
    played.boots.wait_until(lambda: played.boots.ready(node) == "True")
    with removed_afterwards(played.boots, node):
        env = [
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "GREETING", "value": "from $(WHERE)"},
            # As EKS's webhook tells a pod whose service account has a Pod Identity association.
            {"name": CREDENTIALS_URI, "value": AGENT},
        ]
        ports = [{"containerPort": 8080}]
        folder = played.run("login", "example.com/team/login:1.0", node.private_dns_name, env=env, ports=ports)
        played.until((folder / "found.json").exists)
        found = json.loads((folder / "found.json").read_text())
        assert found["user"] == "system:serviceaccount:default:default"
        assert found["key"] == "ASIAPOD"
        assert found["environ"]["GREETING"] == f"from {node.private_dns_name}"
        assert int(found["environ"]["CONTAINER_PORT_8080"]) > 1024
        question = {"cluster": "dev", "namespace": "default", "serviceAccount": "default"}
        assert ("/_local/podidentity", question) in control_api.questions

        pid = pid_of(folder)
        assert is_alive(pid)
        played.boots.api.delete("/api/v1/namespaces/default/pods/login")
        played.until(lambda: not is_alive(pid))


def test_a_pod_that_was_admitted_without_pod_identity_has_no_credentials_of_aws(
    played: Played, control_api: FakeControlApi
) -> None:
    control_api.replies["/_local/podidentity"] = CREDENTIALS
    node = numbered_instance(37)
    played.boots.aws.put(node)
    played.boots.wait_until(lambda: played.boots.ready(node) == "True")
    with removed_afterwards(played.boots, node):
        folder = played.run("login", "example.com/team/login:1.0", node.private_dns_name)
        played.until((folder / "found.json").exists)
        found = json.loads((folder / "found.json").read_text())
        assert found["user"] == "system:serviceaccount:default:default"
        assert found["key"] is None
        played.boots.api.delete("/api/v1/namespaces/default/pods/login")


def test_its_process_ends_when_the_instance_does_whatever_the_pod_object_says(played: Played) -> None:
    """Also one that does not listen to SIGTERM."""
    node = numbered_instance(32)
    played.boots.aws.put(node)
    played.boots.wait_until(lambda: played.boots.ready(node) == "True")
    folder = played.run("stubborn", "stubborn:1", node.private_dns_name)
    played.until((folder / "main.json").exists)
    pid = pid_of(folder)
    with removed_afterwards(played.boots, node):
        played.boots.aws.put(replace(node, state="shutting-down"))
        played.until(lambda: not is_alive(pid))
        pod = played.boots.api.get("/api/v1/namespaces/default/pods/stubborn")
        assert pod["status"]["phase"] == "Running"
    played.boots.api.delete("/api/v1/namespaces/default/pods/stubborn", {"gracePeriodSeconds": 0})


def test_a_container_that_ends_is_started_again(played: Played) -> None:
    node = numbered_instance(33)
    played.boots.aws.put(node)
    played.boots.wait_until(lambda: played.boots.ready(node) == "True")
    with removed_afterwards(played.boots, node):
        folder = played.run("crash", "registry.local/crash:2", node.private_dns_name)
        played.until((folder / "main.json").exists)
        first = pid_of(folder)
        played.until(lambda: pid_of(folder) != first)
        played.boots.api.delete("/api/v1/namespaces/default/pods/crash")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("example.com/team/login:1.0", "login"),
        ("login@sha256:abc", "login"),
        ("registry.local/crash:2", "registry.local/crash"),
        ("registry.local/other", None),
    ],
)
def test_images_find_their_commands(image: str, name: str | None) -> None:
    assert find_command(image, COMMANDS) == (COMMANDS[name] if name else None)
