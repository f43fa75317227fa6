"""Instances that may join become Nodes of the real control plane, and their Nodes go with them."""

import time
from dataclasses import replace

from local.boot.agent import BootAgent, BootDelays, NodeWrites
from local.boot.log import BootLog
from tests.local.conftest import BootHarness, numbered_instance, removed_afterwards

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {
        "containers": [{"name": "main", "image": "any", "resources": {"requests": {"cpu": "500m"}}}],
        "tolerations": [{"operator": "Exists"}],
    },
}


def test_an_instance_becomes_a_node_step_by_step_and_runs_pods(boots: BootHarness) -> None:
    """Registered and NotReady, then initialized, then Ready; its pod runs; at last it is gone."""
    instance = numbered_instance(11)
    boots.aws.put(instance)
    boots.wait_until(lambda: boots.node(instance))
    node = boots.node(instance)
    assert node is not None
    assert boots.ready(instance) == "False"
    taints = {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]}
    assert ("karpenter.sh/unregistered", "NoExecute") in taints
    assert ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule") in taints
    assert "topology.kubernetes.io/zone" not in node["metadata"]["labels"]

    with removed_afterwards(boots, instance):
        boots.wait_until(lambda: boots.ready(instance) == "True")
        node = boots.node(instance)
        assert node is not None
        assert node["spec"]["providerID"] == "aws:///ap-northeast-2a/i-11"
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "ap-northeast-2a"
        assert node["metadata"]["labels"]["node-group-type"] == "spot"
        assert node["status"]["allocatable"]["cpu"] == "1930m"

        boots.api.create("/api/v1/namespaces/default/pods", POD)
        path = "/api/v1/namespaces/default/pods/one"
        boots.wait_until(lambda: boots.api.get(path)["status"]["phase"] == "Running")
        boots.api.delete(path)
        boots.wait_until(lambda: boots.api.find(path) is None)


def test_a_node_that_joins_at_once_has_what_the_cloud_controller_adds(boots: BootHarness) -> None:
    instance = numbered_instance(12)
    delays = BootDelays(0.0, 0.0, 1.0)
    boots.agent = BootAgent(boots.aws, boots.api, BootLog(boots.logs), delays, NodeWrites.AT_ONCE)
    boots.aws.put(instance)
    with removed_afterwards(boots, instance):
        boots.agent.reconcile()
        node = boots.node(instance)
        assert node is not None
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "ap-northeast-2a"
        assert "node.cloudprovider.kubernetes.io/uninitialized" not in {
            taint["key"] for taint in node["spec"]["taints"]
        }
        boots.wait_until(lambda: boots.ready(instance) == "True")
        joined = boots.node(instance)
        boots.aws.put(replace(instance, state="terminated"))
        boots.agent.reconcile()
        after = boots.node(instance)
        assert joined is not None
        assert after is not None
        assert after["metadata"]["labels"] == joined["metadata"]["labels"], "it is not written while its node may go"
        boots.wait_until(lambda: boots.node(instance) is None)


def test_a_refused_instance_has_no_node_and_the_reason_is_written_down(boots: BootHarness) -> None:
    instance = replace(numbered_instance(13), vpc_id="vpc-other")
    boots.aws.put(instance)
    for _ in range(3):
        boots.agent.reconcile()
    assert boots.node(instance) is None
    lines = (boots.logs / "boot-refusals.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert '"Subnet"' in lines[0]


def test_a_node_whose_instance_shuts_down_stays_not_ready(boots: BootHarness) -> None:
    """kwok must let go of it, or it would turn Ready again."""
    instance = numbered_instance(14)
    boots.aws.put(instance)
    boots.wait_until(lambda: boots.ready(instance) == "True")
    boots.aws.put(replace(instance, state="shutting-down"))
    boots.wait_until(lambda: boots.ready(instance) == "False")
    with removed_afterwards(boots, instance):
        for _ in range(30):
            boots.agent.reconcile()
            assert boots.ready(instance) == "False"
            time.sleep(0.1)


def test_a_deleted_node_of_a_running_instance_does_not_come_back(boots: BootHarness) -> None:
    """A kubelet registers when it starts, not again; also when the agent itself starts anew."""
    instance = numbered_instance(15)
    boots.aws.put(instance)
    boots.wait_until(lambda: boots.node(instance))
    boots.api.delete(f"/api/v1/nodes/{instance.private_dns_name}")
    for agent in (boots.agent, BootAgent(boots.aws, boots.api, BootLog(boots.logs), BootDelays(0.0, 0.0, 0.0))):
        agent.reconcile()
        assert boots.node(instance) is None


def test_an_address_is_taken_over_only_when_the_old_node_is_gone(boots: BootHarness) -> None:
    old = numbered_instance(16)
    new = replace(old, id="i-16b")
    boots.aws.put(old)
    boots.wait_until(lambda: boots.ready(old) == "True")
    boots.aws.put(new)
    boots.agent.reconcile()
    assert (boots.node(old) or {})["spec"]["providerID"].endswith("/i-16")
    boots.aws.put(replace(old, state="terminated"))
    with removed_afterwards(boots, new):
        boots.wait_until(lambda: (boots.node(new) or {"spec": {}})["spec"].get("providerID", "").endswith("/i-16b"))
