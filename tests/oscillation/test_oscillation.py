"""Clusters on which Karpenter replaces what it has just bought: Spotwright's first answer is its last.

``python -m bench.disruption.oscillation`` recorded them with the real disruption methods of Karpenter.
"""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from bench.disruption.oscillation import Oscillation, consolidate_until_settled, disrupted_again, rebuild

RECORDED = sorted(Path(__file__).with_name("clusters").glob("*.json"))


def read(path: Path) -> Oscillation:
    return msgspec.json.decode(path.read_bytes(), type=Oscillation)


def test_there_are_several_and_karpenter_goes_back_on_each() -> None:
    assert len(RECORDED) >= 4
    assert all(disrupted_again(read(path).karpenter) for path in RECORDED)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_no_node_that_consolidation_bought_goes_again(path: Path, tmp_path: Path) -> None:
    recorded = read(path)
    cluster = rebuild(recorded.workload, recorded.nodes, tmp_path)
    before, pods = cluster.price_picousd_per_hour, {pod.key for pod in cluster.snapshot.pods}
    steps = list(consolidate_until_settled(cluster))
    assert not disrupted_again(steps)
    assert {pod.key for pod in cluster.snapshot.pods} == pods
    prices = [before, *(step.price_picousd_per_hour for step in steps)]
    assert all(later < earlier for earlier, later in pairwise(prices))
    assert prices[-1] <= recorded.karpenter[-1].price_picousd_per_hour
