"""What the invariants of the campaign see."""

from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.simulation import builders
from spotwright.workflows.ports.rows import LaunchRow
from tests.campaign.calls import Call
from tests.campaign.invariants.purchases import LimitsKept, SurplusEnds
from tests.campaign.invariants.rest import NoPodWaits
from tests.campaign.world import CampaignWorld

ROW = LaunchRow("l1", builders.CLUSTER, "d1", ("claim-a", "claim-b"), "", phase="done")


def add_instance(world: CampaignWorld, number: int) -> Instance:
    tags = {labels.LAUNCH_TAG: ROW.id, labels.NODEPOOL: "limited"}
    instance = Instance(f"i-{number}", "c5.2xlarge", "ap-northeast-2a", "spot", "pending", tags=tags)
    world.ec2.instances[instance.id] = instance
    return instance


def add_claim(world: CampaignWorld, name: str, *, instance: str = "", deleted: bool = False) -> None:
    about = ObjectMeta(
        name, labels={labels.NODEPOOL: "limited"}, finalizers=(labels.FINALIZER,),
        deletion_timestamp=world.clock.now() if deleted else None,
    )  # fmt: skip
    claim = NodeClaim(
        about, builders.nodepool().node_class_ref, provider_id=f"aws:///a/{instance}" if instance else ""
    )  # fmt: skip
    world.cluster.put("nodeclaims", claim)


def test_a_pod_on_a_node_that_is_gone_waits_for_its_replacement() -> None:
    world = CampaignWorld()
    world.cluster.put("nodes", builders.unmanaged_node("there"))
    world.cluster.put("pods", builders.pod("at-home", node_name="there"))
    world.cluster.put("pods", builders.pod("left-behind", node_name="gone"))
    assert list(NoPodWaits(world).unsettled()) == ["default/left-behind is on gone, which is gone"]


def test_nodes_that_go_count_against_no_limit_also_while_they_are_launched() -> None:
    """Of a NodeClaim that is deleted before it has its providerID, the launch's row says which instance it is."""
    world = CampaignWorld()
    world.cluster.update("nodepools", "limited", limits={"cpu": 8_000})
    limits = LimitsKept(world)
    limits.after_step()
    specification = {"ResourceType": "instance", "Tags": [{"Key": labels.NODEPOOL, "Value": "limited"}]}
    launched = Call("ec2", "create_fleet", ({"TagSpecifications": [specification]},))
    first, second = add_instance(world, 1), add_instance(world, 2)
    add_claim(world, "claim-a", instance=first.id)
    add_claim(world, "claim-b", deleted=True)
    world.state.create(ROW)
    limits.after(launched, None)
    assert not limits.violations
    assigned = LaunchRow("l1", builders.CLUSTER, "d1", ROW.claims, "", instances={"claim-b": second.id})
    world.state.rows[f"launch#{ROW.id}"] = assigned
    limits.after(launched, None)
    assert not limits.violations
    add_claim(world, "claim-b")
    limits.after(launched, None)
    assert [violation.details for violation in limits.violations] == [
        "NodePool limited has 16000m cpu, its limit is 8000m"
    ]


def test_a_launch_that_ends_leaves_no_instance_without_a_nodeclaim() -> None:
    world = CampaignWorld()
    ends = SurplusEnds(world)
    first = add_instance(world, 1)
    add_claim(world, "claim-a", instance=first.id)
    ends.after(Call("state", "save", (ROW,)), ROW)
    assert not ends.violations
    add_instance(world, 2)
    ends.after(Call("state", "save", (ROW,)), ROW)
    assert [violation.details for violation in ends.violations] == [
        "launch l1 ends, and i-2 is pending without a NodeClaim"
    ]
