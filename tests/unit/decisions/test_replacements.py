"""Which NodeClaims are awaited before a node goes."""

import msgspec
import pytest

from spotwright.decisions.decision import Disruption, Launch
from spotwright.decisions.replacements import with_replacements
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.scheduling.plan import NewNode, Plan
from spotwright.simulation import builders
from tests.unit.disruption.builders import node, on, snapshot


@pytest.mark.parametrize("other", ["a-second", "z-second"])
@pytest.mark.parametrize("moves", ["node-a", "second"])
def test_what_takes_pods_of_any_node_of_the_instance_is_awaited(other: str, moves: str) -> None:
    second = node("a", metadata=ObjectMeta(other))
    pod = on("a", builders.pod("web"))
    pod = pod if moves == "node-a" else msgspec.structs.replace(pod, node_name=other)
    cluster = snapshot("a", nodes=(node("a"), second), pods=(pod,))
    new = NewNode("default", "default", (), (), (), {}, (), (), {}, 0, "", ())
    launch = Launch(id="l", node=new, claims=("new",), moving_pods=({pod.key: pod.metadata.uid},))
    disruption = Disruption(id="d", reason="Interrupted", candidates=("a",), candidate_uids={"a": "a"})
    (completed,) = with_replacements([disruption], cluster, Plan(), [launch])
    assert completed.replacements == ("new",)
