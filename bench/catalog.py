"""`make bench-catalog`: what a catalog costs to refresh, and to read in a process that has just started.

The region is read from the local AWS in this process, which sells what EC2 sells in Seoul; the time of its answers is
not EC2's, so calls and bytes are what to look at. Reading is measured in processor time, in fresh processes. Exits with
1 when a goal is missed.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from bench.burst import account_nodeclass, local_account
from local.aws import moto_setup
from spotwright.adapters.aws import pricing
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.aws.images import families
from spotwright.aws.instance_types import catalog_codec, offerings
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.refusal import Refusal
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclass import EC2NodeClass

REGION: Final = "ap-northeast-2"
CLUSTER: Final = "dev-eks-cluster"
RUNS: Final = 5
MAX_MILLISECONDS: Final = 100
# Reads argv[1] as a function does, its imports done: milliseconds of processor time.
_READER: Final = """
import sys, time
from spotwright.aws import catalog_wire
body = open(sys.argv[1], "rb").read()
started = time.process_time()
catalog_wire.decode(body)
print((time.process_time() - started) * 1000)
"""

type Row = tuple[str, str, str]


class ResponseCounter:
    """Counts what AWS answers to clients."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes = 0

    def count(self, client: Any) -> Any:
        client.meta.events.register("after-call.*", self._seen)
        return client

    def _seen(self, http_response: Any, model: Any, **_: object) -> None:
        self.calls[model.name] += 1
        self.bytes += len(http_response.content)


def main() -> int:
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    moto_setup.prepare(REGION)
    answers, directory = ResponseCounter(), Path(tempfile.mkdtemp(prefix="spotwright-bench-catalog-"))
    with local_account(directory, REGION, CLUSTER) as (account, client):
        nodeclass = account_nodeclass(client("ec2"), client("iam"), CLUSTER)
        prices = account.client("pricing", region_name=pricing.endpoint_region(REGION))
        market = Ec2Region(answers.count(client("ec2")), answers.count(prices), region=REGION)
        started = time.perf_counter()
        region = market.read(datetime.now(UTC))
        read = time.perf_counter() - started
    assert not region.notes, region.notes
    missed = False
    for name, figure, goal in (*_refreshed(region, answers, read), *_stored(directory, region, nodeclass)):
        print(f"{name:<58} {figure:>16}   {goal}", flush=True)
        missed = missed or (goal != "" and float(figure.split()[0]) > MAX_MILLISECONDS)
    return 1 if missed else 0


def _refreshed(region: RegionFacts, answers: ResponseCounter, seconds: float) -> Iterator[Row]:
    yield "instance types of the region", str(len(region.types)), ""
    for name, count in sorted(answers.calls.items()):
        yield f"{name} calls", str(count), ""
    yield "calls in all", str(answers.calls.total()), ""
    yield "bytes answered", f"{answers.bytes / 1e6:.1f} MB", ""
    yield "reading the region, the local AWS answering", f"{seconds:.1f} s", ""


def _stored(directory: Path, region: RegionFacts, node_class: EC2NodeClass) -> Iterator[Row]:
    """One class, and two that differ in how many pods they allow."""
    other_nodeclass = msgspec.structs.replace(node_class, kubelet={"maxPods": 20})
    for classes in ({"a": node_class}, {"a": node_class, "b": other_nodeclass}):
        started = time.process_time()
        body = catalog_codec.encode(Catalog({name: _types(region, nodeclass) for name, nodeclass in classes.items()}))
        made = time.process_time() - started
        file = directory / f"{len(classes)}.json"
        file.write_bytes(body)
        of = f"of {len(classes)} class{'es' if len(classes) > 1 else ''}"
        yield f"making the catalog {of}, processor time", f"{made * 1000:.0f} ms", ""
        yield f"the catalog {of}", f"{len(body) / 1000:.0f} KB", ""
        told = f"reading the catalog {of}, processor time"
        yield told, f"{_read_milliseconds(file):.0f} ms", f"≤ {MAX_MILLISECONDS} ms"


def _types(region: RegionFacts, node_class: EC2NodeClass) -> Any:
    family = families.ami_family(node_class)
    assert not isinstance(family, Refusal), family
    return offerings.instance_types(region, offerings.offering_context(node_class, family), Overheads())


def _read_milliseconds(file: Path) -> float:
    command = [sys.executable, "-c", _READER, str(file)]
    return median(float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(RUNS))


if __name__ == "__main__":
    sys.exit(main())
