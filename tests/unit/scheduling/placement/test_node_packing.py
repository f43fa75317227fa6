"""Which nodes are made for pods without rules, by price."""

from spotwright.model import labels
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import (
    LARGE,
    MEDIUM,
    SMALL,
    instance,
    planned,
    pod,
    pods,
    pool,
    shown,
)

ON_DEMAND = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))


class TestPrice:
    def test_one_node_is_made_where_two_would_cost_the_same(self) -> None:
        assert shown(planned(*pods(4, cpu=1, memory="1Gi"), pools=[pool("default", ON_DEMAND)])) == ["medium x 4"]

    def test_the_shape_follows_the_pods(self) -> None:
        assert shown(planned(*pods(4, cpu="500m", memory="7Gi"), types=[SMALL, MEDIUM, LARGE])) == ["large x 2"] * 2
        assert shown(planned(*pods(4, cpu="500m", memory="7Gi"))) == ["fat x 4"]

    def test_spot_is_taken_where_the_pool_allows_it_and_on_demand_stays_an_alternative(self) -> None:
        (new_node,) = planned(pod()).new_nodes
        assert (new_node.capacity_type, new_node.price_picousd_per_hour) == (labels.SPOT, 40_000_000_000)
        assert any(alternative.capacity_type == labels.ON_DEMAND for alternative in new_node.alternatives)
        kinds = next(expression for expression in new_node.requirements if expression.key == labels.CAPACITY_TYPE)
        assert kinds.values == (labels.ON_DEMAND, labels.SPOT)

    def test_types_are_listed_cheapest_first_and_all_fit(self) -> None:
        (new_node,) = planned(pod(cpu=3), pools=[pool("default", ON_DEMAND)]).new_nodes
        assert new_node.instance_types == ("medium", "fat", "large")

    def test_a_cheaper_larger_type_is_taken(self) -> None:
        sale = instance("sale", 16, 64, 0.05)
        assert shown(planned(pod(cpu=1), types=[SMALL, sale], pools=[pool("default", ON_DEMAND)])) == ["sale x 1"]

    def test_a_pod_gets_no_gpu_it_did_not_ask_for(self) -> None:
        gpu = instance("gpu", 2, 4, 0.01, labels={labels.INSTANCE_PREFIX + "gpu-count": "1"})
        plain = pool("default", ON_DEMAND)
        assert shown(planned(pod(), types=[SMALL, gpu], pools=[plain])) == ["small x 1"]
        assert shown(planned(pod(), types=[gpu], pools=[plain])) == ["gpu x 1"]

    def test_pods_with_a_device_come_onto_nodes_with_it(self) -> None:
        gpu = instance("gpu", 8, 16, 2, capacity={"nvidia.com/gpu": 4})
        wanting = pods(5, "g", cpu=1, memory="1Gi", requests={"nvidia.com/gpu": 1})
        plan = planned(*wanting, *pods(2, "plain", cpu=1), types=[SMALL, gpu], pools=[pool("default", ON_DEMAND)])
        assert [
            len([key for key in new_node.pods if "/g-" in key])
            for new_node in plan.new_nodes
            if "gpu" in new_node.instance_types
        ]
        assert sum(new_node.instance_types[0] == "gpu" for new_node in plan.new_nodes) == 2

    def test_nodes_stay_within_the_usual_size_unless_a_pod_needs_more(self) -> None:
        huge = instance("huge", 192, 384, 8)
        usual = instance("usual", 48, 96, 2)
        plain = pool("default", ON_DEMAND)
        assert shown(planned(*pods(8, cpu=20, memory="1Gi"), types=[usual, huge], pools=[plain])) == ["usual x 2"] * 4
        assert shown(planned(pod(cpu=100), types=[usual, huge], pools=[plain])) == ["huge x 1"]

    def test_a_reason_and_the_binding_resource_are_given(self) -> None:
        (new_node,) = planned(*pods(3, cpu=1, memory="128Mi"), pools=[pool("default", ON_DEMAND)]).new_nodes
        assert new_node.binding_resource == "cpu"
        assert "medium on-demand at $0.2000/h is the cheapest of 3 types with room for its pods" in new_node.reason
