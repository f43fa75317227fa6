"""`python -m bench.lifecycle.public_tests NAME`: Karpenter's public performance tests, on the deployed local stack.

They are written for any provider of this API, and are taken as they are from Karpenter's module. With --karpenter the
same tests follow of Karpenter's controller with its provider for kwok, on a control plane of its own. Printed is how
long each phase took that came to its end; the whole output stays in build/public-tests. It needs Linux and up to an
hour for each, and nothing but loopback addresses.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from bench.lifecycle import karpenter
from bench.scale.workloads import class_and_pool
from local.aws.strictness import WITHOUT_DELAYS
from local.boot.agent import Joining
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.kubernetes.binaries import cache_folder
from local.kubernetes.control_plane import KUBELET_LABEL
from local.kubernetes.toolchain import go_environment
from local.stack import Stack, StackOptions

# The Go module that fixes the version of the tests.
_MODULE: Final = Path(__file__).parent / "karpenter_tests"
_PACKAGE: Final = "sigs.k8s.io/karpenter/test/suites/performance"
_ENVIRONMENT: Final = "test/pkg/environment/common"
_OUTPUT: Final = Path("build/public-tests")
_TEST_MINUTES: Final = 60
_READY_SECONDS: Final = 180
# The tests fail where a node of somebody else takes their pods.
_TAINT: Final = {"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}
_SIZE: Final = {"cpu": "16", "memory": "32Gi", "pods": "110"}
_SYSTEM_NODE: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "system",
        "labels": {
            KUBELET_LABEL: "kwok", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "system",
        },
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    },
    "spec": {"taints": [_TAINT]},
    "status": {"capacity": _SIZE, "allocatable": _SIZE},
}  # fmt: skip

type Object = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-public-tests", description=__doc__)
    parser.add_argument("name", help="a regular expression: the tests whose names it matches, such as Interference")
    parser.add_argument("--karpenter", action="store_true", help="the same of Karpenter")
    options = parser.parse_args()
    # As Ctrl-C: every process of the stack is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tests, environment = _build()
    reference = karpenter.build(_tell) if options.karpenter else None
    try:
        _of_spotwright(tests, environment, options.name)
        if reference is not None:
            _of_karpenter(reference, tests, environment, options.name)
    except KeyboardInterrupt:
        return 130
    return 0


def _build() -> tuple[Path, Path]:
    """The program with the tests, and the folder with their default objects; raises CalledProcessError."""
    _tell("building Karpenter's public tests, a few minutes the first time")
    variables = dict(go_environment(cache_folder(), _tell))
    binary = cache_folder() / "bench-karpenter-public-tests"
    subprocess.run(["go", "test", "-c", "-o", str(binary), _PACKAGE], cwd=_MODULE, env=variables, check=True)
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"],
        cwd=_MODULE, env=variables, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return binary, Path(listed.stdout.strip()) / _ENVIRONMENT


def _of_spotwright(tests: Path, environment: Path, name: str) -> None:
    with _directory() as directory:
        _tell("a local stack with Spotwright deployed, about a minute")
        options = StackOptions(lenient=WITHOUT_DELAYS, joining=Joining.AT_ONCE)
        with Stack.start(directory, forwarder_command=forwarder_command(directory), options=options) as stack:
            _add_system_node(stack)
            roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
            CdkDeployment(stack, node_roles=roles).deploy()
            _move_to_system_node(stack)
            (node_class,) = (
                made for made in yaml.safe_load_all(class_and_pool(stack.cluster)) if made["kind"] == "EC2NodeClass"
            )
            node_class["metadata"] = {"name": "default"}
            pool = _pool(environment)
            reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
            pool["spec"]["template"]["spec"]["nodeClassRef"] = reference
            _run(stack, "Spotwright", tests, name, node_class, pool)


def _of_karpenter(reference: karpenter.Karpenter, tests: Path, environment: Path, name: str) -> None:
    with _directory() as directory:
        _tell("a local control plane with Karpenter")
        options = StackOptions()
        with Stack.start(directory, options=options) as stack, karpenter.running(reference, stack, options):
            _add_system_node(stack)
            _move_to_system_node(stack)
            # The tests make their own.
            found = json.loads(stack.kubectl("get", "kwoknodeclass", "default", "-o", "json").stdout)
            stack.kubectl("delete", "kwoknodeclass", "default")
            node_class = {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "default"}}
            pool = _pool(environment)
            pool["spec"]["template"]["metadata"] = {"labels": {KUBELET_LABEL: "kwok"}}
            _run(stack, "Karpenter", tests, name, node_class, pool)


def _pool(environment: Path) -> Object:
    pool: Object = yaml.safe_load((environment / "default_nodepool.yaml").read_text())
    return pool


def _add_system_node(stack: Stack) -> None:
    stack.kubectl("apply", "-f", "-", input=json.dumps(_SYSTEM_NODE))
    stack.kubectl("wait", "--for=condition=Ready", "node/system", "--timeout=60s")


def _move_to_system_node(stack: Stack) -> None:
    """Every Deployment runs there, with all of its pods, and none waits for a node."""
    template = {"spec": {"template": {"spec": {"tolerations": [{"key": _TAINT["key"], "operator": "Exists"}]}}}}
    for deployment in json.loads(stack.kubectl("get", "deployments", "-A", "-o", "json").stdout)["items"]:
        named = (deployment["metadata"]["name"], "-n", deployment["metadata"]["namespace"])
        stack.kubectl("patch", "deployment", *named, "--type=strategic", "-p", json.dumps(template))
        stack.kubectl("rollout", "status", "deployment", *named, f"--timeout={_READY_SECONDS}s")


def _run(stack: Stack, who: str, tests: Path, name: str, node_class: Object, pool: Object) -> None:
    output = (_OUTPUT / who.lower()).resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    files = {}
    for flag, made in {"-default-nodeclass": node_class, "-default-nodepool": pool}.items():
        files[flag] = output / f"{flag.removeprefix('-')}.yaml"
        files[flag].write_text(yaml.safe_dump(made))
    command = [
        str(tests), "-test.v", f"-test.timeout={_TEST_MINUTES}m", "-ginkgo.v", f"-ginkgo.focus={name}",
        *(f"{flag}={file}" for flag, file in files.items()),
    ]  # fmt: skip
    variables = {
        "KUBECONFIG": str(stack.kubeconfig),
        "OUTPUT_DIR": str(output),
        "HOME": str(output),
        "PATH": os.defpath,
    }
    log = output / "output.txt"
    _tell(f"{name}: output in {log}")
    with log.open("w") as written:
        process = subprocess.Popen(command, cwd=output, env=variables, stdout=written, stderr=subprocess.STDOUT)
        _follow(process, who, output)
    shutil.copytree(stack.logs, output / "logs")
    print(f"| {who}: {name} | {'passed' if process.returncode == 0 else 'failed'} |", flush=True)


def _follow(process: "subprocess.Popen[bytes]", who: str, output: Path) -> None:
    """Print each phase as it ends."""
    told: set[Path] = set()
    try:
        while process.poll() is None:
            time.sleep(1)
            for report in sorted(set(output.glob("*_performance_report.json")) - told):
                told.add(report)
                print(_line(who, json.loads(report.read_text())), flush=True)
    finally:
        process.kill()


def _line(who: str, report: Mapping[str, Any]) -> str:
    seconds = report["total_time"] / 1e9
    return f"| {who}: {report['test_name']} | {seconds:.0f} s | {report['total_nodes']} nodes |"


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-public-tests-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
