"""`python -m bench.lifecycle.public_tests NAME`: Karpenter's public end-to-end tests, on the deployed local stack.

They are written for any provider of this API, and are taken as they are from Karpenter's module: of its suite
`performance` or `regression`. With `--of both` the same tests follow of Karpenter's controller with its provider for
kwok, on a control plane of its own. Printed is how long each test took, its cleaning up included, and each phase of one
for performance; the whole output stays in build/public-tests. It needs Linux and up to an hour for each test of
performance, two and a half for the whole of `regression`, and nothing but loopback addresses.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.lifecycle import karpenter
from bench.lifecycle.system_node import add_system_node, move_to_system_node
from bench.scale.workloads import class_and_pool
from local.aws.strictness import WITHOUT_DELAYS
from local.boot.agent import NodeWrites
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.kubernetes.binaries import cache_folder
from local.kubernetes.control_plane import KUBELET_LABEL
from local.kubernetes.toolchain import go_environment
from local.stack import Stack, StackOptions

# The Go module that fixes the version of the tests.
_MODULE: Final = Path(__file__).parent / "karpenter_tests"
_SUITES: Final = "sigs.k8s.io/karpenter/test/suites"
_ENVIRONMENT: Final = "test/pkg/environment/common"
_DEFINITIONS: Final = "pkg/apis/crds"
_BUFFERS: Final = "autoscaling.x-k8s.io_capacitybuffers.yaml"
_OUTPUT: Final = Path("build/public-tests")
_MINUTES: Final = {"performance": 60, "regression": 240}
# What the suites test; each is off by default on both sides.
_FEATURE_GATES: Final = "CapacityBuffer=true,NodeRepair=true,StaticCapacity=true"
_NANOSECONDS: Final = 1_000_000_000
# As in the NodePools of Karpenter's tests for AWS: some tests count nodes, which hold three pods at least.
_REQUIREMENTS: Final = (
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
)

type Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tests:
    """The program with the tests of a suite, which of them run, and where their default objects and definitions are."""

    suite: str
    name: str
    binary: Path
    environment: Path
    definitions: Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-public-tests", description=__doc__)
    parser.add_argument("name", help="a regular expression: the tests whose names it matches, such as Interference")
    parser.add_argument("--suite", choices=sorted(_MINUTES), default="performance")
    parser.add_argument("--of", choices=("spotwright", "karpenter", "both"), default="spotwright")
    parser.add_argument(
        "--cpu", help="nodes have so many CPUs, as those of the tests of CapacityBuffers are to have: 2"
    )
    options = parser.parse_args()
    # As Ctrl-C: every process of the stack is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tests = _build(options.suite, options.name)
    reference = karpenter.build(_tell) if options.of != "spotwright" else None
    try:
        ours = _of_spotwright(tests, options.cpu) if options.of != "karpenter" else {}
        theirs = _of_karpenter(reference, tests) if reference is not None else {}
    except KeyboardInterrupt:
        return 130
    if not ours | theirs:
        parser.error(f"no test of {tests.suite} has a name that matches {tests.name}")
    print("| test | Spotwright | Karpenter |")
    for name in ours | theirs:
        print(f"| {name} | {ours.get(name, '–')} | {theirs.get(name, '–')} |")
    return 0


def _build(suite: str, name: str) -> Tests:
    """Raises CalledProcessError."""
    _tell("building Karpenter's public tests, a few minutes the first time")
    variables = dict(go_environment(cache_folder(), _tell))
    binary = cache_folder() / f"bench-karpenter-public-tests-{suite}"
    command = ["go", "test", "-c", "-o", str(binary), f"{_SUITES}/{suite}"]
    subprocess.run(command, cwd=_MODULE, env=variables, check=True)
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"],
        cwd=_MODULE, env=variables, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    module = Path(listed.stdout.strip())
    return Tests(suite, name, binary, module / _ENVIRONMENT, module / _DEFINITIONS)


def _of_spotwright(tests: Tests, cpu: str | None) -> dict[str, str]:
    with _directory() as directory:
        _tell("a local stack with Spotwright deployed, about a minute")
        options = StackOptions(lenient=WITHOUT_DELAYS, node_writes=NodeWrites.AT_ONCE)
        with Stack.start(directory, forwarder_command=forwarder_command(directory), options=options) as stack:
            add_system_node(stack)
            stack.kubectl("apply", "-f", str(tests.definitions / _BUFFERS))
            roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
            deployment = CdkDeployment(stack, node_roles=roles)
            deployment.settings["FEATURE_GATES"] = _FEATURE_GATES
            deployment.deploy()
            move_to_system_node(stack)
            (node_class,) = (
                made for made in yaml.safe_load_all(class_and_pool(stack.cluster)) if made["kind"] == "EC2NodeClass"
            )
            node_class["metadata"] = {"name": "default"}
            pool = _pool(tests)
            reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
            pool["spec"]["template"]["spec"]["nodeClassRef"] = reference
            pool["spec"]["template"]["spec"]["requirements"] += [
                *_REQUIREMENTS,
                *([{"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": [cpu]}] if cpu else []),
            ]
            return _run(stack, "Spotwright", tests, node_class, pool)


def _of_karpenter(reference: karpenter.Karpenter, tests: Tests) -> dict[str, str]:
    with _directory() as directory:
        _tell("a local control plane with Karpenter")
        options = StackOptions()
        with (
            Stack.start(directory, options=options) as stack,
            karpenter.running(reference, stack, options, feature_gates=_FEATURE_GATES),
        ):
            add_system_node(stack)
            move_to_system_node(stack)
            # The tests make their own.
            found = json.loads(stack.kubectl("get", "kwoknodeclass", "default", "-o", "json").stdout)
            stack.kubectl("delete", "kwoknodeclass", "default")
            node_class = {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "default"}}
            pool = _pool(tests)
            pool["spec"]["template"]["metadata"] = {"labels": {KUBELET_LABEL: "kwok"}}
            return _run(stack, "Karpenter", tests, node_class, pool)


def _pool(tests: Tests) -> Object:
    pool: Object = yaml.safe_load((tests.environment / "default_nodepool.yaml").read_text())
    return pool


def _run(stack: Stack, who: str, tests: Tests, node_class: Object, pool: Object) -> dict[str, str]:
    """What came of each test that ran, by name."""
    output = (_OUTPUT / who.lower()).resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    files = {}
    for flag, made in {"-default-nodeclass": node_class, "-default-nodepool": pool}.items():
        files[flag] = output / f"{flag.removeprefix('-')}.yaml"
        files[flag].write_text(yaml.safe_dump(made))
    minutes = _MINUTES[tests.suite]
    results = output / "results.json"
    command = [
        str(tests.binary), "-test.v", f"-test.timeout={minutes + 1}m", f"-ginkgo.timeout={minutes}m", "-ginkgo.v",
        f"-ginkgo.json-report={results}", f"-ginkgo.focus={tests.name}",
        *(f"{flag}={file}" for flag, file in files.items()),
    ]  # fmt: skip
    variables = {
        "KUBECONFIG": str(stack.kubeconfig),
        "OUTPUT_DIR": str(output),
        "HOME": str(output),
        "PATH": os.defpath,
    }
    log = output / "output.txt"
    _tell(f"{tests.suite}, {tests.name}: output in {log}")
    with log.open("w") as written:
        process = subprocess.Popen(command, cwd=output, env=variables, stdout=written, stderr=subprocess.STDOUT)
        _follow(process, who, output)
    shutil.copytree(stack.logs, output / "logs")
    return dict(_results(results))


def _follow(process: "subprocess.Popen[bytes]", who: str, output: Path) -> None:
    """Print each phase as it ends."""
    told: set[Path] = set()
    try:
        while process.poll() is None:
            time.sleep(1)
            for report in sorted(set(output.glob("*_performance_report.json")) - told):
                told.add(report)
                print(_phase(who, json.loads(report.read_text())), flush=True)
    finally:
        process.kill()


def _phase(who: str, report: Mapping[str, Any]) -> str:
    seconds = report["total_time"] / _NANOSECONDS
    return f"| {who}: {report['test_name']} | {seconds:.0f} s | {report['total_nodes']} nodes |"


def _results(results: Path) -> Iterator[tuple[str, str]]:
    """``results``: in the shape of Ginkgo's reports."""
    for suite in json.loads(results.read_text()):
        for spec in suite["SpecReports"] or ():
            if spec["LeafNodeType"] == "It" and spec["State"] != "skipped":
                name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
                seconds = f"{spec['RunTime'] / _NANOSECONDS:.0f} s"
                yield name, seconds if spec["State"] == "passed" else f"{spec['State']} after {seconds}"


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
