"""Followers never cause the first node of a cluster."""

from spotwright.model import labels
from tests.unit.scheduling.builders import (
    node,
    owned_by,
    planned,
    pod,
    why,
)


class TestFollowers:
    DNS = pod("dns", namespace="kube-system", labels={"k8s-app": "kube-dns"})

    def test_a_follower_never_causes_the_first_node(self) -> None:
        plan = planned(self.DNS, pod("agent", annotations={labels.FOLLOW: "true"}))
        assert plan.new_nodes == ()
        reasons = why(plan)
        assert (
            "it matches FOLLOWER_SELECTORS (k8s-app=kube-dns): no node is bought for it alone"
            in (reasons["kube-system/dns"])
        )
        assert f"it has the annotation {labels.FOLLOW}=true: no node is bought for it alone" in reasons["default/agent"]

    def test_a_follower_is_sized_into_a_node_made_for_others(self) -> None:
        plan = planned(self.DNS, pod("web", cpu=1))
        assert [new_node.pods for new_node in plan.new_nodes] == [("default/web", "kube-system/dns")]

    def test_a_follower_waits_when_the_others_find_no_place_either(self) -> None:
        assert planned(self.DNS, pod("web", cpu=500)).new_nodes == ()

    def test_a_follower_takes_room_there_is(self) -> None:
        plan = planned(self.DNS, nodes=(node("n1"),))
        assert [assignment.pods for assignment in plan.existing_nodes] == [("kube-system/dns",)]

    def test_beside_other_work_a_follower_is_an_ordinary_pod(self) -> None:
        web = pod("web", cpu=4, memory="7Gi", node_name="n1", phase="Running")
        assert len(planned(self.DNS, web, nodes=(node("n1"),)).new_nodes) == 1

    def test_a_node_that_runs_only_followers_and_daemons_gets_no_company(self) -> None:
        dns = pod(
            "old", cpu=4, namespace="kube-system", labels={"k8s-app": "kube-dns"}, node_name="n1", phase="Running"
        )
        agent = pod("agent", node_name="n1", owner_references=owned_by("DaemonSet"))
        assert planned(self.DNS, dns, agent, nodes=(node("n1"),)).new_nodes == ()
