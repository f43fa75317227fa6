"""`python -m bench.reading`: what knowing a cluster costs: from the shipped state, from listed pages, object by object.

Each figure is of a process of its own, whose memory is that of the reading alone: pages are made before it starts and
read from a file. "by object" is the slowest way, any JSON into dictionaries and each of them into the model.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.realistic_objects import PODS_PER_NODE, listed_node, listed_pod
from spotwright.adapters.cluster_state.bodies import decode, encode_full, state_key
from spotwright.adapters.cluster_state.head import decode_head, encode_head
from spotwright.adapters.kubernetes.codecs.listed_objects import node_decoder
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.model.cluster_state import (
    KIND_FIELDS,
    ClusterObjects,
    ClusterState,
    ClusterStateHead,
    KindState,
    in_order,
)
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod

SIZES: Final = (1_000, 10_000, 50_000)
PAGE_SIZE: Final = 500
TAKEN: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Measured(msgspec.Struct, frozen=True):
    """``seconds`` of processor time; ``megabytes``: what the process needed at most beyond what it began with."""

    seconds: float
    megabytes: float
    read_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reading", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="PODS")
    parser.add_argument("--by-object-up-to", type=int, default=10_000, metavar="PODS")
    parser.add_argument("--way", choices=_WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(msgspec.json.encode(_measure(_WAYS[arguments.way], arguments.folder)).decode())
        return 0
    print(f"{'pods':>7} {'nodes':>6}  {'way':<10} {'read':>9} {'processor':>10} {'memory':>8}   ratio to the state")
    for pods in arguments.sizes:
        for line in _rows(pods, by_object=pods <= arguments.by_object_up_to):
            print(line, flush=True)
    return 0


def _rows(pods: int, *, by_object: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="spotwright-bench-") as name:
        folder = Path(name)
        write_pages(folder, pods)
        write_state(folder)
        state = _in_process("state", folder)
        for way in _WAYS if by_object else ("state", "pages"):
            found = state if way == "state" else _in_process(way, folder)
            yield (
                f"{pods:>7} {pods // PODS_PER_NODE:>6}  {way:<10} {found.read_bytes / 1e6:>6.1f} MB"
                f" {found.seconds:>8.2f} s {found.megabytes:>5.0f} MB   {found.seconds / state.seconds:.1f}"
            )


def _in_process(way: str, folder: Path) -> Measured:
    command = (sys.executable, "-m", "bench.reading", "--way", way, "--folder", str(folder))
    return msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout, type=Measured)


def _measure(read: Callable[[Path], object], folder: Path) -> Measured:
    # Linux alone: the peak of getrusage is at least that of the parent process.
    Path("/proc/self/clear_refs").write_text("5")
    before, started = resident_megabytes("VmRSS"), time.process_time()
    result = read(folder)
    seconds, peak = time.process_time() - started, resident_megabytes("VmHWM")
    assert result
    suffix = "state" if read is read_state else "page"
    return Measured(seconds, peak - before, sum(file.stat().st_size for file in folder.glob(f"*.{suffix}")))


def resident_megabytes(field: str) -> float:
    """``VmRSS``: what the process has now; ``VmHWM``: what it had at most since the peak was cleared."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kilobytes) / 1024


def read_state_head(folder: Path) -> ClusterStateHead:
    return decode_head((folder / "head").read_text(), cluster="main", now=TAKEN)


def read_state(folder: Path) -> object:
    head = read_state_head(folder)
    return decode(head, (folder / "full.state").read_bytes())


def read_pages(folder: Path) -> tuple[tuple[Pod, ...], tuple[Node, ...]]:
    return read_pods(folder), read_nodes(folder)


def read_pods(folder: Path) -> tuple[Pod, ...]:
    """As a planner reads them that lists for itself."""
    pods = pod_decoder()
    return tuple(pod for content in _pages(folder, "pods") for pod in pods.page(content).items)


def read_nodes(folder: Path) -> tuple[Node, ...]:
    nodes = node_decoder()
    return tuple(node for content in _pages(folder, "nodes") for node in nodes.page(content).items)


def _read_by_object(folder: Path) -> object:
    return (
        tuple(decode_pod(obj) for content in _pages(folder, "pods") for obj in json.loads(content)["items"]),
        tuple(decode_node(obj) for content in _pages(folder, "nodes") for obj in json.loads(content)["items"]),
    )


_WAYS: Final[dict[str, Callable[[Path], object]]] = {
    "state": read_state,
    "pages": read_pages,
    "by object": _read_by_object,
}


def _pages(folder: Path, kind: str) -> Iterator[bytes]:
    return (file.read_bytes() for file in sorted(folder.glob(f"{kind}-*.page")))


def write_pages(folder: Path, pods: int) -> None:
    """The lists of an API server, in pages as it gives them."""
    _write_kind(folder, "pods", listed_pod, pods)
    _write_kind(folder, "nodes", listed_node, pods // PODS_PER_NODE)


def _write_kind(folder: Path, kind: str, make: Callable[[int], dict[str, Any]], count: int) -> None:
    for first in range(0, count, PAGE_SIZE):
        items = [make(number) for number in range(first, min(count, first + PAGE_SIZE))]
        page = {"kind": "List", "metadata": {"resourceVersion": str(10**9)}, "items": items}
        (folder / f"{kind}-{first:07}.page").write_bytes(msgspec.json.encode(page))


def write_state(folder: Path) -> None:
    """The state of the same cluster, as the forwarder ships it."""
    pods, nodes = read_pages(folder)
    kinds = {kind: KindState(str(10**9), TAKEN) for kind in KIND_FIELDS}
    objects = in_order(ClusterObjects(pods=pods, nodes=nodes))
    full = encode_full(ClusterState(cluster="main", epoch=1, sequence=1, taken=TAKEN, kinds=kinds, objects=objects))
    head = ClusterStateHead(cluster="main", epoch=1, sequence=1, taken=TAKEN, kinds=kinds, full=state_key("main", full))
    (folder / "full.state").write_bytes(full)
    (folder / "head").write_text(encode_head(head))


if __name__ == "__main__":
    sys.exit(main())
