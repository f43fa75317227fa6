"""Random cases by the seed: are all plans legal, is nobody left whom another scheduler places, and what do they cost?

    python -m bench.cases --seed 1 --count 200                    # each profile, up to 60 pods
    python -m bench.cases --seed 7 --profile full --pods 5000
    python -m bench.cases --seed 1 --count 50 --out DIR           # keeps the cases, for another scheduler
    python -m bench.cases --seed 1 --count 50 --peer PLANS.jsonl  # its plans, each with the field "case"

Exit status 1 when a plan breaks a rule, or leaves a pod that a legal plan of the peer places while it places no other
pod more.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.cli.inputs.sources import read_documents
from spotwright.cli.text.plan_json import plan_to_json
from spotwright.cli.text.plan_report import PlanReport
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.pod_planner import plan_pods
from tests.cases.generator.draft import HERE, PROFILES
from tests.cases.generator.writing import case, text
from tests.cases.judge.catalog import find_catalog
from tests.cases.judge.cluster import load
from tests.cases.judge.loader import read
from tests.cases.judge.verdict import judge

type PlanJson = dict[str, Any]


@cache
def _catalog(path: Path) -> Catalog:
    return read_catalog_file(str(path))


def _planned(file: Path) -> tuple[PlanJson, float]:
    """Our plan as other programs read it, and the processor seconds it took, reading included."""
    catalog = _catalog(find_catalog(read(file)["catalog"], file))
    before = time.process_time()
    plan = plan_pods(decode_snapshot(read_documents([str(file)])), catalog)
    return json.loads(plan_to_json(PlanReport(plan))), time.process_time() - before


def _cases(arguments: argparse.Namespace, folder: Path) -> Iterator[Path]:
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        for profile in (arguments.profile,) if arguments.profile else PROFILES:
            file = folder / f"{profile}-{seed:04}.yaml"
            file.write_text(text(case(seed, profile, arguments.pods)))
            yield file


def _refused(plan_json: PlanJson) -> set[str]:
    return {unplaced["pod"] for unplaced in (*plan_json["unschedulable"], *plan_json.get("ignored", ()))}


def _price(plan_json: PlanJson) -> float:
    return sum(node.get("pricePerHour") or 0 for node in plan_json["newNodes"])


def _beside(file: Path, plan_json: PlanJson, theirs: PlanJson, totals: Counter[str]) -> bool:
    """Compare with another scheduler's plan; False when it legally places a pod that ours leaves for nothing."""
    left, other = _refused(plan_json), _refused(theirs)
    profile = file.stem.partition("-")[0]
    if left == other:
        totals[f"{profile} ours"] += round(_price(plan_json) * 10**6)
        totals[f"{profile} peer"] += round(_price(theirs) * 10**6)
    missing = sorted(left - other)
    if not missing or len(other) >= len(left) or judge(theirs, load(file)).violations:
        return True
    reasons = next(unplaced["reasons"] for unplaced in plan_json["unschedulable"] if unplaced["pod"] == missing[0])
    print(f"LEFT     {file.stem}: {len(missing)} pods, {missing[0]}: {'; '.join(reasons)}")
    return False


def _run(arguments: argparse.Namespace, folder: Path) -> bool:
    peers: dict[str, PlanJson] = {}
    if arguments.peer:
        peers = {peer["case"]: peer for peer in map(json.loads, Path(arguments.peer).read_text().splitlines())}
    good, totals, slowest = True, Counter[str](), (0.0, "")
    for file in _cases(arguments, folder):
        plan_json, seconds = _planned(file)
        slowest = max(slowest, (seconds, file.stem))
        for rule, what in judge(plan_json, load(file)).violations:
            good = False
            print(f"ILLEGAL  {file.stem}: {rule}: {what}")
        if "newNodes" in peers.get(file.stem, {}):
            good &= _beside(file, plan_json, peers[file.stem], totals)
        totals["cases"] += 1
        totals["pods placed"] += sum(
            len(node["pods"]) for node in (*plan_json["newNodes"], *plan_json["existingNodes"])
        )
    print(f"{totals['cases']} cases, {totals['pods placed']} pods placed; slowest {slowest[1]}, {slowest[0]:.1f} s")
    for profile in PROFILES:
        if totals[f"{profile} peer"]:
            ours, theirs = totals[f"{profile} ours"] / 10**6, totals[f"{profile} peer"] / 10**6
            print(f"{profile}: ${ours:.2f} an hour, the peer ${theirs:.2f}, where both place the same pods")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first; the next ones count up")
    parser.add_argument("--count", type=int, default=1, help="seeds")
    parser.add_argument("--profile", choices=PROFILES, help="default: each of them")
    parser.add_argument("--pods", type=int, default=60, help="waiting pods at most")
    parser.add_argument("--peer", metavar="FILE", help="plans of another scheduler, one JSON object per line")
    parser.add_argument("--out", metavar="DIR", help="where the cases are kept (default: nowhere)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments.out or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "catalogs").exists():
            (folder / "catalogs").symlink_to(HERE / "catalogs")
        return 0 if _run(arguments, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
