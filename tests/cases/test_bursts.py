"""A burst of pods into an empty cluster never costs more than with Karpenter, whose prices are those of its best run.

Measured by ``python -m bench.planner``, which also runs the larger ones.
"""

from pathlib import Path
from typing import Final

import pytest

from bench.planner import problems
from bench.planner.spotwright_run import load
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.pod_planner import plan_pods

# Karpenter v1.14.1 on nodes of at most 64 vCPU: USD per hour for the seeds 0, 1, 2.
PRICES: Final = {
    ("micro", 100): (1.224, 4.520, 2.064),
    ("memheavy", 100): (5.424, 5.424, 4.520),
    ("inflate", 100): (4.284, 4.284, 4.284),
    ("spread30", 100): (11.300, 2.064, 3.184),
    ("anti10", 100): (0.994, 1.224, 6.328),
    ("mixed", 100): (1.184, 2.560, 2.631),
    ("memheavy", 1000): (60.568, 59.664, 56.952),
    ("inflate", 1000): (39.168,),
}


@pytest.mark.parametrize(
    ("kind", "count", "seed", "most"),
    [(kind, count, seed, most) for (kind, count), several in PRICES.items() for seed, most in enumerate(several)],
)
def test_a_burst_costs_no_more_than_karpenters(tmp_path: Path, kind: str, count: int, seed: int, most: float) -> None:
    snapshot, catalog = load(str(problems.burst(tmp_path, kind, count, seed, 64)))
    plan = plan_pods(snapshot, catalog)
    assert not plan.unschedulable_pods
    assert round(plan.price_picousd_per_hour / PICOUSD, 3) <= most


def test_five_thousand_pods_with_rules_are_within_a_percent_of_what_any_plan_must_cost(tmp_path: Path) -> None:
    plan = plan_pods(*load(str(problems.burst(tmp_path, "mixed", 5000, 2))))
    assert not plan.unschedulable_pods
    assert plan.price_picousd_per_hour <= plan.lower_bound_picousd_per_hour * 1.01


@pytest.mark.parametrize(
    ("kind", "percent"),
    [("micro", 2.2), ("memheavy", 0.3), ("inflate", 1.2), ("spread30", 0.6), ("anti10", 1.4), ("mixed", 2.0)],
)
def test_a_thousand_pods_cost_little_more_than_any_plan_must(tmp_path: Path, kind: str, percent: float) -> None:
    plan = plan_pods(*load(str(problems.burst(tmp_path, kind, 1000, 0, 64))))
    assert plan.price_picousd_per_hour <= plan.lower_bound_picousd_per_hour * (1 + percent / 100)
