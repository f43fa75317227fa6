"""Nodes have room for the DaemonSets that run on them."""

from spotwright.model import labels
from spotwright.model.kubernetes.taints import Taint, Toleration
from tests.unit.scheduling.builders import (
    LARGE,
    MEDIUM,
    SMALL,
    daemonset,
    planned,
    pod,
    pods,
    pool,
    shown,
)

BATCH = Taint("dedicated", "NoSchedule", "batch")


class TestDaemons:
    def test_a_new_node_has_room_for_its_daemons(self) -> None:
        plan = planned(pod(cpu=2), daemonsets=(daemonset(cpu="100m"),), types=[SMALL, MEDIUM])
        assert shown(plan) == ["medium x 1"]
        assert plan.new_nodes[0].requests["cpu"] == 2100

    def test_a_daemon_that_does_not_come_takes_no_room(self) -> None:
        tainted = pool("default", taints=(BATCH,))
        tolerant = pod(cpu=2, tolerations=(Toleration("dedicated", "Exists"),))
        plan = planned(tolerant, pools=[tainted], daemonsets=(daemonset(cpu=1),), types=[SMALL, MEDIUM])
        assert shown(plan) == ["small x 1"]

    def test_each_type_has_its_own_daemons(self) -> None:
        only_large = daemonset(cpu=7, node_selector={labels.INSTANCE_TYPE: "large"})
        plan = planned(*pods(6, cpu=1, memory="128Mi"), daemonsets=(only_large,), types=[MEDIUM, LARGE])
        assert "large x" not in " ".join(shown(plan))
