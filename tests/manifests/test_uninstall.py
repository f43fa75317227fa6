"""Emptying a cluster, and handing it back."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from spotwright.errors import Conflict, NotFound
from spotwright.workflows.install.uninstall import POLL_SECONDS, SETTLE_SECONDS, UninstallResult, drain, hand_back
from tests.manifests.cluster import wanted

type Object = dict[str, Any]

FORCE = "karpenter.sh/nodeclaim-termination-timestamp"


@dataclass
class World:
    """A cluster, its pause, and time. A claim that is deleted goes ``slow[name]`` seconds later, with its node.

    ``log`` tells in order what was asked: pause, cordon <node>, delete <claim>.
    """

    claims: dict[str, Object] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)
    pods: list[Object] = field(default_factory=list)
    slow: dict[str, float] = field(default_factory=dict)
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    now: float = 0.0
    patience: float = 600.0
    log: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def add(self, name: str, *, system: bool = False, node: bool = True, slow: float = 5.0) -> None:
        status = {"providerID": f"aws:///a/{name}", "nodeName": f"node-{name}"} if node else {}
        self.claims[name] = {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}
        self.slow[name] = slow
        if node:
            self.nodes[f"node-{name}"] = {"metadata": {"name": f"node-{name}"}, "spec": {}}
        if system:
            metadata = {"name": "dns", "namespace": "kube-system", "ownerReferences": [{"kind": "ReplicaSet"}]}
            self.pods.append({"metadata": metadata, "spec": {"nodeName": f"node-{name}"}})

    def list(self, api_version: str, kind: str, /) -> list[Object]:
        objects = {"NodeClaim": self.claims.values(), "Node": self.nodes.values(), "Pod": self.pods}[kind]
        return copy.deepcopy(list(objects))

    def merge(self, document: Any, change: Any, /) -> Object:
        name = document["metadata"]["name"]
        home = self.nodes if document["kind"] == "Node" else self.claims
        if name not in home:
            raise NotFound(name)
        if "spec" in change:
            self.log.append(f"cordon {name}")
            home[name]["spec"].update(change["spec"])
        else:
            home[name]["metadata"].setdefault("annotations", {}).update(change["metadata"]["annotations"])
        return home[name]

    def delete(self, document: Any, /) -> None:
        name = document["metadata"]["name"]
        if document["kind"] != "NodeClaim":
            self.log.append(f"delete {document['kind']}")
            return
        if self.claims[name]["metadata"]["uid"] != document["metadata"]["uid"]:
            raise Conflict(name)
        self.log.append(f"delete {name}")
        self.claims[name]["metadata"]["deletionTimestamp"] = "now"
        self.later.append((self.now + self.slow[name], lambda: self._remove_node(name)))

    def _remove_node(self, name: str) -> None:
        del self.claims[name]
        self.nodes.pop(f"node-{name}", None)
        self.pods = [pod for pod in self.pods if pod["spec"]["nodeName"] != f"node-{name}"]

    def remaining_seconds(self) -> float:
        return self.patience - self.now

    def pause(self, what: Any) -> None:
        """The pause of the cluster (a reason), or the passing of time (seconds)."""
        if isinstance(what, str):
            self.log.append("pause")
            return
        self.now += what
        due = [act for at, act in self.later if at <= self.now]
        self.later = [(at, act) for at, act in self.later if at > self.now]
        for act in due:
            act()

    def drain(self, **more: Any) -> UninstallResult:
        return drain(self, self, self, self.said.append, **more)


def test_an_empty_cluster_is_paused_and_that_is_all() -> None:
    world = World()
    assert world.drain() == UninstallResult()
    assert world.log == ["pause"]
    assert world.now <= SETTLE_SECONDS


def test_everything_is_cordoned_before_anything_goes_and_add_ons_go_last() -> None:
    world = World()
    for name, system in (("b", False), ("a", True), ("c", False)):
        world.add(name, system=system)
    assert world.drain().finished == ("a", "b", "c")
    assert world.log == [
        "pause",
        *(f"cordon node-{name}" for name in "bac"),
        "delete b",
        "delete c",
        "delete a",
    ]
    assert world.claims == {}


def test_a_cluster_that_has_only_nodes_with_add_ons_is_emptied_too() -> None:
    world = World()
    world.add("a", system=True)
    assert world.drain().finished == ("a",)


def test_a_claim_that_appears_late_goes_too() -> None:
    world = World()
    world.add("a")
    world.later.append((15.0, lambda: world.add("late", node=False)))
    assert world.drain().finished == ("a", "late")


def test_a_second_run_goes_on_where_the_first_gave_up() -> None:
    world = World(patience=10)
    world.add("a", slow=30)
    world.add("b")
    first = world.drain()
    assert first.finished == ("b",)
    assert first.remaining == ("a: instance terminating",)
    world.patience = 600
    assert world.drain().finished == ("a",)
    assert world.log.count("delete a") == 1


def test_what_is_left_is_told_as_it_is_when_the_time_is_up() -> None:
    """A claim that was deleted a moment before is deleted, however little time there was."""
    world = World(patience=1)
    world.add("a")
    assert world.drain().remaining == ("a: instance terminating",)


def test_what_holds_a_drain_up_is_told_once_in_the_claims_own_words() -> None:
    world = World(patience=30)
    world.add("a", slow=1000)
    message = "3 pods are waiting to be evicted"
    world.claims["a"]["status"]["conditions"] = [{"type": "Drained", "status": "Unknown", "message": message}]
    assert world.drain().remaining == (f"a: {message}",)
    assert sum(message in line for line in world.said) == 1


def test_budgets_are_obeyed_unless_a_time_is_given() -> None:
    world = World()
    world.add("a")
    world.add("b")
    world.claims["b"]["metadata"]["annotations"] = {FORCE: "2030-01-01T00:00:00Z"}
    kept: dict[str, str] = {}
    end = world._remove_node

    def remove(name: str) -> None:
        kept[name] = world.claims[name]["metadata"].get("annotations", {}).get(FORCE, "")
        end(name)

    world._remove_node = remove  # type: ignore[method-assign]
    world.drain(force_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert kept == {"a": "2026-01-02T03:04:05Z", "b": "2030-01-01T00:00:00Z"}
    other_world = World()
    other_world.add("c")
    other_world.drain()
    assert "annotations" not in str(other_world.log)


def test_handing_back_takes_only_our_own_parts_in_reverse() -> None:
    world = World()
    world.add("a")
    outcome = hand_back(world, world, world, world.said.append, parts=wanted().parts)
    assert outcome.finished == ("a",)
    assert world.log[:2] == ["pause", "delete Deployment"]
    assert {line.split()[1] for line in world.log[1:]} == {
        "Deployment", "ClusterRoleBinding", "ServiceAccount", "ClusterRole", "FlowSchema",
        "PriorityLevelConfiguration",
    }  # fmt: skip
    assert "a" in world.claims


def test_handing_back_waits_for_launches_under_way() -> None:
    world = World()
    world.add("a", node=False)
    world.later.append((10.0, lambda: world.claims["a"]["status"].update(providerID="aws:///a/i-1")))
    assert hand_back(world, world, world, world.said.append, parts=wanted().parts).finished == ("a",)
    assert world.now >= 10


def test_handing_back_waits_for_nodes_that_nobody_else_would_let_go() -> None:
    world = World(patience=30.0)
    world.add("a")
    world.nodes["node-a"]["spec"]["taints"] = [{"key": "spotwright.dev/held", "effect": "NoSchedule"}]
    outcome = hand_back(world, world, world, world.said.append, parts=wanted().parts)
    assert outcome.remaining == ("node node-a is not Ready yet",)
    assert world.log == ["pause"]
    world.patience = 600.0
    world.later.append((world.now + 10.0, lambda: world.nodes["node-a"]["spec"].update(taints=[])))
    assert hand_back(world, world, world, world.said.append, parts=wanted().parts).finished == ("a",)


@pytest.mark.parametrize("patience", [0.0, 2 * POLL_SECONDS])
def test_handing_back_gives_up_without_touching_anything(patience: float) -> None:
    world = World(patience=patience)
    world.add("a", node=False)
    outcome = hand_back(world, world, world, world.said.append, parts=wanted().parts)
    assert outcome.remaining == ("nodeclaim a has no instance yet",)
    assert world.log == ["pause"]
