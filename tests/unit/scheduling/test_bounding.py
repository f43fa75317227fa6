"""A plan's lower bound: never above its price, and met where pods fill nodes."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotwright.model.instancetype import Catalog
from spotwright.scheduling.planner import plan
from tests.unit.scheduling.builders import TYPES, pod, pool, snapshot

CATALOG = Catalog({"": TYPES})

sizes = st.tuples(st.sampled_from(("100m", "700m", "1900m", "3")), st.sampled_from(("64Mi", "900Mi", "3Gi", "9Gi")))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(sizes, st.integers(1, 9)), min_size=1, max_size=6))
def test_no_plan_costs_less_than_its_bound(groups: list[tuple[tuple[str, str], int]]) -> None:
    pods = [
        pod(f"app-{number}-{copy}", cpu, memory)
        for number, ((cpu, memory), count) in enumerate(groups)
        for copy in range(count)
    ]
    made = plan(snapshot(*pods, pools=(pool("default"),)), CATALOG)
    assert bool(made.bound_picousd_per_hour) == bool(made.new_nodes)
    assert made.bound_picousd_per_hour <= made.price_picousd_per_hour


def test_the_bound_grows_with_the_pods() -> None:
    few = plan(snapshot(*(pod(f"a-{n}") for n in range(3)), pools=(pool("default"),)), CATALOG)
    many = plan(snapshot(*(pod(f"a-{n}") for n in range(30)), pools=(pool("default"),)), CATALOG)
    assert 9 * few.bound_picousd_per_hour < many.bound_picousd_per_hour
