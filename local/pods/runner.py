"""Starts and ends the processes of pods: level by level, from what pods and nodes look like now."""

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.kubernetes.api import ApiError, ApiUnavailable, KubernetesApi
from local.kubernetes.control_plane import KUBELET_LABEL
from local.kubernetes.informer import Informer
from local.kubernetes.kubeconfig import read_kubeconfig
from local.pods.credentials import TOKEN_SECONDS, PodCredentials, PodIdentityAgent, issue_credentials
from local.pods.environment import ContainerConfigError, container_environment, expand_references
from local.ports import Ports
from local.processes import Processes

# A container that ends is started again after 1 s, 2 s, 4 s … at most this long.
LONGEST_BACKOFF_SECONDS = 30.0
# Runs at least this long reset the backoff.
SOUND_SECONDS = 60.0

type Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Where things are. `commands` maps image names to commands."""

    directory: Path
    kubeconfig: Path
    region: str
    commands: Mapping[str, Sequence[str]]


@dataclass(slots=True)
class ContainerProcess:
    """One container of one pod that runs, or will run again, as a process called `name`."""

    pod: Pod
    spec: Mapping[str, Any]
    credentials: PodCredentials | None
    command: list[str]
    environment: dict[str, str]
    name: str = ""
    started_at: float = 0.0
    starts: int = 0
    next_start: float = 0.0
    renewed_at: float = field(default_factory=time.monotonic)


class PodRunner:
    """`reconcile` makes the processes match the pods; `changed` is set when it should be called."""

    def __init__(
        self, api: KubernetesApi, settings: RunnerSettings, processes: Processes, credentials: PodIdentityAgent
    ) -> None:
        self._api = api
        self._settings = settings
        self._processes = processes
        self._credentials = credentials
        self._server = read_kubeconfig(settings.kubeconfig).server
        self._ports = Ports()
        self._running: dict[tuple[str, str], ContainerProcess] = {}
        self.changed = threading.Event()
        self._pods = Informer(api, "/api/v1/pods", self.changed)
        self._nodes = Informer(api, "/api/v1/nodes", self.changed)

    def close(self) -> None:
        """Look no further; the processes belong to whoever gave `processes`."""
        self._pods.close()
        self._nodes.close()
        self._ports.close()

    def reconcile(self) -> None:
        """End what should not run, start what should, start again what ended."""
        alive = {node["metadata"]["name"] for node in self._nodes.objects() if _has_kubelet(node)}
        wanted = {
            (pod["metadata"]["uid"], spec["name"]): (pod, spec, command)
            for pod in self._pods.objects()
            if _runs(pod) and pod["spec"].get("nodeName") in alive
            for spec in pod["spec"]["containers"]
            if (command := find_command(spec["image"], self._settings.commands)) is not None
        }
        for key in self._running.keys() - wanted.keys():
            self._end(self._running.pop(key))
        for key, (pod, spec, command) in wanted.items():
            self._keep(key, pod, spec, command)

    def _keep(self, key: tuple[str, str], pod: Pod, spec: Mapping[str, Any], command: Sequence[str]) -> None:
        try:
            container = self._running.get(key) or self._prepare(pod, spec, command)
            self._running[key] = container
            self._renew(container)
            if not self._is_up(container) and time.monotonic() >= container.next_start:
                self._start(container)
        except (ApiError, ApiUnavailable, ContainerConfigError) as error:
            log(pod, f"{spec['name']} cannot start: {type(error).__name__}: {error}")

    def _prepare(self, pod: Pod, spec: Mapping[str, Any], command: Sequence[str]) -> ContainerProcess:
        folder = self._settings.directory / f"{pod['metadata']['namespace']}_{pod['metadata']['name']}"
        folder.mkdir(parents=True, exist_ok=True)
        identity = None
        given = _basics(folder) | self._addresses(spec)
        if pod["spec"].get("automountServiceAccountToken", True):
            identity = issue_credentials(folder / "serviceaccount", self._api, pod, self._settings.kubeconfig)
            given |= identity.environment(self._server)
        environment = container_environment(pod, spec, given, self._find)
        if identity is not None:
            environment |= identity.pod_identity(environment, self._credentials.uri)
        arguments = [expand_references(word, environment) for word in [*command, *(spec.get("args") or [])]]
        return ContainerProcess(pod, spec, identity, arguments, environment)

    def _addresses(self, spec: Mapping[str, Any]) -> dict[str, str]:
        """The local AWS, and a free port of this machine for each port of the container."""
        ports = [entry["containerPort"] for entry in spec.get("ports") or []]
        return {
            **self._credentials.aws_environment(),
            "AWS_REGION": self._settings.region,
            "AWS_DEFAULT_REGION": self._settings.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            **{f"CONTAINER_PORT_{port}": str(self._ports.take()) for port in ports},
        }

    def _find(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        plural = {"Secret": "secrets", "ConfigMap": "configmaps"}[kind]
        found = self._api.find(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
        return None if found is None else found.get("data") or {}

    def _renew(self, container: ContainerProcess) -> None:
        if container.credentials and time.monotonic() - container.renewed_at > TOKEN_SECONDS / 2:
            container.credentials.renew(self._api, container.pod)
            container.renewed_at = time.monotonic()

    def _is_up(self, container: ContainerProcess) -> bool:
        """Is its process running? One that ended is scheduled again, later each time."""
        code = self._processes.exit_codes().get(container.name)
        if not container.name or code is None:
            return bool(container.name)
        self._processes.stop(container.name)
        log(container.pod, f"{container.spec['name']} ended with {code}")
        if time.monotonic() - container.started_at > SOUND_SECONDS:
            container.starts = 0
        pause = min(LONGEST_BACKOFF_SECONDS, 2.0 ** max(0, container.starts - 1))
        container.next_start = time.monotonic() + pause
        container.name = ""
        return False

    def _start(self, container: ContainerProcess) -> None:
        metadata = container.pod["metadata"]
        container.name = f"pod-{metadata['namespace']}-{metadata['name']}-{container.spec['name']}"
        container.starts += 1
        container.started_at = time.monotonic()
        folder = Path(container.environment["HOME"])
        process = self._processes.start(
            container.name, container.command, environment=container.environment, directory=folder
        )
        state = {"pid": process.pid, "environment": container.environment, "node": container.pod["spec"]["nodeName"]}
        # Whoever sees the file finds all of it.
        unfinished = folder / f"{container.spec['name']}.json.unfinished"
        unfinished.write_text(json.dumps(state, indent=2))
        unfinished.replace(folder / f"{container.spec['name']}.json")
        log(container.pod, f"{container.spec['name']} runs as process {process.pid}")

    def _end(self, container: ContainerProcess) -> None:
        """SIGTERM now and SIGKILL after the grace period, without keeping the others waiting."""
        if not container.name:
            return
        grace = container.pod["spec"].get("terminationGracePeriodSeconds", 30)
        log(container.pod, f"{container.spec['name']} is ended")
        threading.Thread(target=self._processes.stop, args=[container.name], kwargs={"grace_seconds": grace}).start()


def find_command(image: str, commands: Mapping[str, Sequence[str]]) -> Sequence[str] | None:
    """The command of an image: the key is a prefix of the whole reference or of its last path segment."""
    last = image.rpartition("/")[2]
    for name, command in commands.items():
        if image.startswith(name) or last.startswith(name):
            return command
    return None


def log(pod: Pod, text: str) -> None:
    """One line of the runner's log."""
    print(f"{time.strftime('%H:%M:%S')} {pod['metadata']['namespace']}/{pod['metadata']['name']} {text}", flush=True)


def _runs(pod: Pod) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _has_kubelet(node: Mapping[str, Any]) -> bool:
    """Without its kubelet's label the instance is gone, whatever the API still says of its pods."""
    return KUBELET_LABEL in (node["metadata"].get("labels") or {})


def _basics(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
