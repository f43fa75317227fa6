"""Our planner on one problem, in a process of its own: what the decision took and what it would cost, as JSON.

Timed is the whole decision, `plan(snapshot, catalog)`: grouping, nodes that exist, new nodes, improvement, reasons.
"""

import gc
import json
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import batched
from pathlib import Path
from typing import Any, Final

import msgspec

from spotwright.aws.instance_types import unavailable_offerings
from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.model.snapshot import Snapshot, UnavailableOffering
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.pod_planner import plan_pods

PAGE: Final = 500


class _Problem(msgspec.Struct, rename="camel"):
    """A problem's file. What is raw is read when it is its turn, as the functions read a list page by page."""

    catalog: str
    sold_out: list[str]
    node_pools: list[msgspec.Raw]
    daemon_sets: list[msgspec.Raw]
    nodes: list[msgspec.Raw]
    node_claims: list[msgspec.Raw]
    pods: list[msgspec.Raw]


def load(path: str) -> tuple[Snapshot, Catalog]:
    """A problem as the planner sees it."""
    problem = msgspec.json.decode(Path(path).read_bytes(), type=_Problem)
    kinds = {
        "NodePool": problem.node_pools,
        "DaemonSet": problem.daemon_sets,
        "Node": problem.nodes,
        "NodeClaim": problem.node_claims,
    }
    few = [document for kind, several in kinds.items() for document in _documents(path, kind, several)]
    pods = [
        pod
        for page in batched(problem.pods, PAGE, strict=False)
        for pod in decode_snapshot(Documents(tuple(_documents(path, "Pod", page)))).pods
    ]
    catalog = read_catalog_file(problem.catalog)
    gone = unavailable_offerings.from_snapshot(
        UnavailableOffering(offering.capacity_type, instance_type.name, offering.zone)
        for instance_type in catalog.instance_types("")
        for offering in instance_type.offerings
        if instance_type.name in problem.sold_out
    )
    snapshot = msgspec.structs.replace(decode_snapshot(Documents(tuple(few))), pods=tuple(pods))
    return snapshot, unavailable_offerings.apply_to_catalog(catalog, (), gone)


def _documents(path: str, kind: str, several: Iterable[msgspec.Raw]) -> Iterator[Document]:
    return (Document(path, {"kind": kind} | msgspec.json.decode(one)) for one in several)


def _peak_kb() -> int:
    """Of this program alone: getrusage knows the largest size of the process that started it as well."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """``python -m bench.planner.ours PROBLEM WARM``: one line of JSON, as the Go program prints it."""
    plan_pods(*load(sys.argv[2]))
    snapshot, catalog = load(sys.argv[1])
    gc.collect()
    started, worked = time.perf_counter(), time.process_time()
    plan = plan_pods(snapshot, catalog)
    spent = {"seconds": time.perf_counter() - started, "cpuSeconds": time.process_time() - worked}
    print(json.dumps(spent | measurement(snapshot, plan)))


def measurement(snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    small = {pod.key for pod in snapshot.pods if pod.metadata.labels.get("size") == "small"}
    placed = [key for new_node in plan.new_nodes for key in new_node.pods]
    placed += [key for assignment in plan.existing_nodes for key in assignment.pods]
    return {
        "price": plan.price_picousd_per_hour / PICOUSD,
        "bound": plan.lower_bound_picousd_per_hour / PICOUSD,
        "nodes": len(plan.new_nodes),
        "placed": len(placed),
        "smallPlaced": sum(1 for key in placed if key in small),
        "pods": sum(1 for pod in snapshot.pods if not pod.node_name),
        "peakMB": _peak_kb() // 1024,
    }


if __name__ == "__main__":
    main()
