"""The whole local stack: AWS, Kubernetes, booting instances and the pods that really run, put together.

Every part logs to DIRECTORY/logs. Several stacks run side by side; each directory holds one.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from local.aws.strictness import lenient_by_default
from local.boot.agent import NodeWrites
from local.kubernetes.addons import WEBHOOK_IMAGE, install_addons
from local.kubernetes.binaries import Binaries, ensure_built
from local.kubernetes.certificates import KeyIdentifiers
from local.kubernetes.control_plane import SERVICE_CIDR, ControlPlane, ControlPlaneStarter
from local.kubernetes.versions import kubernetes_version, minor_version
from local.ports import Ports
from local.processes import Processes

ROOT = Path(__file__).parents[1]
REGION = "ap-northeast-2"
ACCOUNT = "123456789012"
CLUSTER = "dev-eks-cluster"
# Pods with an image of this name run as the process that `forwarder_command` names.
FORWARDER_IMAGE = "spotwright-forwarder"
READY_SECONDS = 300.0

type Report = Callable[[str], None]


class StackInUse(RuntimeError):
    """Another stack runs in this directory."""


class ControlFailed(RuntimeError):
    """The control API of the local AWS refused; the text says why."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What a stack is started with. `pod_commands` maps image names to the commands their pods run.

    Delays in seconds: launch to registration, registration to Ready, termination to deletion of the Node. `node_writes`
    AT_ONCE: Nodes are made by one write, which comes after both delays, and not written before they are deleted.
    `lenient` names rules of local/aws/strictness.py that are relaxed.
    `region`: where the account's AWS is.
    `node_grace_seconds`: how long a Node may go without a heartbeat, by default as long as in Kubernetes.
    `key_identifiers` OMITTED makes the API server's certificates as many EKS clusters have them.
    """

    cluster: str = CLUSTER
    region: str = REGION
    pod_commands: Mapping[str, Sequence[str]] | None = None
    boot_seconds: float = 3.0
    ready_seconds: float = 2.0
    removal_seconds: float = 5.0
    node_writes: NodeWrites = NodeWrites.IN_STEPS
    lenient: Sequence[str] = field(default_factory=lenient_by_default)
    node_grace_seconds: int = 50
    key_identifiers: KeyIdentifiers = KeyIdentifiers.INCLUDED


def print_progress(text: str) -> None:
    """Progress goes to standard error, so that output can be piped."""
    print(text, file=sys.stderr, flush=True)


class Stack:
    """A running stack; a context manager that ends everything it started."""

    def __init__(self, directory: Path, options: StackOptions, resources: ExitStack) -> None:
        self.directory = directory
        self.region = options.region
        self.account = ACCOUNT
        self.cluster = options.cluster
        self.logs = directory / "logs"
        self.kubeconfig = directory / "kubeconfig"
        self._options = options
        self._resources = resources
        self._ports = Ports()
        resources.callback(self._ports.close)
        self._processes = resources.enter_context(Processes(self.logs))
        self.aws_endpoint = f"http://127.0.0.1:{self._ports.take()}"
        self._pool = urllib3.PoolManager(retries=False, timeout=120.0)

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        cluster: str = CLUSTER,
        forwarder_command: Sequence[str] | None = None,
        options: StackOptions | None = None,
        report: Report = print_progress,
    ) -> Self:
        """Start a stack and return when all of it answers. Raises StackInUse, ProcessEnded, BuildFailed."""
        options = options or StackOptions(cluster=cluster)
        if forwarder_command is not None:
            pods = {**(options.pod_commands or {}), FORWARDER_IMAGE: list(forwarder_command)}
            options = replace(options, pod_commands=pods)
        directory = directory.resolve()
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as resources:
            resources.enter_context(_lock(directory))
            _clear(directory)
            binaries = ensure_built(report)
            stack = cls(directory, options, resources)
            stack._bring_up(binaries, report)
            stack._resources = resources.pop_all()
        return stack

    def close(self) -> None:
        """End every part. Logs stay."""
        self._resources.close()
        for name in ("kubernetes", "kubectl-cache", "bin"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for path in (self.kubeconfig, self.directory / "stack.json"):
            path.unlink(missing_ok=True)

    def environment(self) -> dict[str, str]:
        """Variables with which a subprocess talks to this stack; lay them over the environment it needs."""
        return {
            "AWS_ENDPOINT_URL": self.aws_endpoint,
            # The CDK CLI hands CloudFormation template URLs, which have to look like S3's.
            "AWS_ENDPOINT_URL_S3_FOR_CLOUDFORMATION": f"https://s3.{self.region}.amazonaws.com",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "local-admin",
            "AWS_SECRET_ACCESS_KEY": "local-admin",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the cluster's administrator. Raises CalledProcessError when `check`."""
        return subprocess.run(
            [str(self.directory / "bin" / "kubectl"), *arguments],
            input=input,
            check=check,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **self.environment()},
        )

    def control(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call the control API of the local AWS. Raises ControlFailed."""
        content = None if body is None else json.dumps(body).encode()
        response = self._pool.request(method, self.aws_endpoint + path, body=content)
        if response.status != 200:
            raise ControlFailed(f"{method} {path}: {response.status} {response.data.decode(errors='replace')}")
        answer = json.loads(response.data)
        return dict(answer)

    def pids(self) -> dict[str, int]:
        """Part to process id."""
        return self._processes.pids()

    def exit_codes(self) -> dict[str, int]:
        """Parts that ended by themselves, with their return codes: none in a sound stack."""
        return self._processes.exit_codes()

    def _bring_up(self, binaries: Binaries, report: Report) -> None:
        started = time.monotonic()
        self._start_aws()
        folder, identifiers = self.directory / "kubernetes", self._options.key_identifiers
        starter = ControlPlaneStarter(folder, binaries, self._processes, self._ports, identifiers)
        plane = starter.start(
            aws_endpoint=self.aws_endpoint,
            cluster=self.cluster,
            environment=self._child_environment(),
            node_grace_seconds=self._options.node_grace_seconds,
        )
        report(f"Kubernetes {kubernetes_version()} at {plane.endpoint} after {time.monotonic() - started:.1f} s")
        self._processes.wait("aws", self._aws_answers, timeout_seconds=READY_SECONDS)
        self._register_cluster(plane)
        report(f"AWS ({self.region}) at {self.aws_endpoint} after {time.monotonic() - started:.1f} s")
        self._lay_out(plane, binaries)
        identity_port = self._start_pod_identity_webhook(plane)
        install_addons(plane, webhook_port=self._ports.take(), pod_identity_port=identity_port)
        self._start_agents(plane)
        self._describe()
        report(f"stack of {self.cluster} is up after {time.monotonic() - started:.1f} s, logs in {self.logs}")

    def _start_aws(self) -> None:
        port = self.aws_endpoint.rpartition(":")[2]
        arguments = ["--port", port, "--directory", str(self.directory), "--region", self.region]
        arguments += ["--cluster", self.cluster, "--lenient", *self._options.lenient]
        self._start_part("aws", "local.aws", *arguments)

    def _aws_answers(self) -> bool:
        try:
            return self._pool.request("GET", f"{self.aws_endpoint}/_local/instances").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _register_cluster(self, plane: ControlPlane) -> None:
        self.control(
            "POST",
            "/_local/clusters",
            {
                "name": self.cluster,
                "endpoint": plane.endpoint,
                "certificateAuthority": plane.certificate_authority,
                "version": minor_version(),
                "serviceIpv4Cidr": SERVICE_CIDR,
            },
        )

    def _lay_out(self, plane: ControlPlane, binaries: Binaries) -> None:
        shutil.copyfile(plane.kubeconfig, self.kubeconfig)
        self.kubeconfig.chmod(0o600)
        kubectl = self.directory / "bin" / "kubectl"
        kubectl.parent.mkdir(exist_ok=True)
        kubectl.unlink(missing_ok=True)
        kubectl.symlink_to(binaries.path("kubectl"))

    def _start_pod_identity_webhook(self, plane: ControlPlane) -> int:
        """Returns its port, at which nobody need listen yet: pods are made without it."""
        pair, port = plane.authority.issue_server_certificate("pod-identity-webhook", ["127.0.0.1"]), self._ports.take()
        where = ["--port", str(port), "--aws", self.aws_endpoint, "--cluster", self.cluster]
        where += ["--certificate", str(pair.certificate), "--key", str(pair.key)]
        self._start_part("pod-identity-webhook", "local.kubernetes.pod_identity_webhook", *where)
        return port

    def _start_agents(self, plane: ControlPlane) -> None:
        where = ["--aws", self.aws_endpoint, "--cluster", self.cluster, "--region", self.region]
        where += ["--kubeconfig", str(plane.kubeconfig)]
        names = ("--boot-seconds", "--ready-seconds", "--removal-seconds")
        delays = [
            text for name, value in zip(names, _delays(self._options), strict=True) for text in (name, str(value))
        ]
        how = ["--node-writes", self._options.node_writes]
        self._start_part("boot", "local.boot", *where, "--logs", str(self.logs), *delays, *how)
        commands = {
            WEBHOOK_IMAGE: [sys.executable, "-m", "local.pods.admission_webhook"],
            **(self._options.pod_commands or {}),
        }
        directory = self.directory / "pods"
        self._start_part(
            "pods",
            "local.pods",
            *where,
            "--directory",
            str(directory),
            "--logs",
            str(self.logs),
            "--commands",
            json.dumps(commands),
        )

    def _start_part(self, name: str, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._processes.start(name, command, environment=self._child_environment(), directory=ROOT)

    def _child_environment(self) -> dict[str, str]:
        """Ours without anything of a real AWS account."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        return {**own, **self.environment(), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def _describe(self) -> None:
        """DIRECTORY/stack.json says how to reach this stack and whom to ask to stop."""
        facts = {"pid": os.getpid(), "cluster": self.cluster, "environment": self.environment()}
        (self.directory / "stack.json").write_text(json.dumps(facts, indent=2))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _delays(options: StackOptions) -> tuple[float, float, float]:
    return options.boot_seconds, options.ready_seconds, options.removal_seconds


def _lock(directory: Path) -> ExitStack:
    """Hold DIRECTORY/stack.lock. Raises StackInUse."""
    held = ExitStack()
    file = held.enter_context((directory / "stack.lock").open("w"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        raise StackInUse(f"a stack is running in {directory}") from None
    return held


def _clear(directory: Path) -> None:
    """What an earlier stack left in the directory would be mistaken for this one's."""
    for name in ("kubernetes", "pods", "logs"):
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / "stack.json").unlink(missing_ok=True)
