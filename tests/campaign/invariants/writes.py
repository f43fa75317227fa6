"""What is written and answered: nothing of others is overwritten or taken in outages, and errors are answers."""

from typing import Any, Final

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows.ports.rows import sort_key
from tests.campaign.calls import Call
from tests.campaign.invariants.invariant import Invariant, is_disrupted_by_choice, live
from tests.campaign.world import CampaignWorld

CLUSTER: Final = "the cluster"


class NothingTakenInOutages(Invariant):
    """While the API server, the table or EC2 does not answer, no instance ends and no Node of one that runs goes."""

    name = "nothing is removed while something does not answer"

    def before(self, call: Call) -> None:
        outages = " and ".join(sorted(self.world.outages.keys() & {"cluster", "state", "ec2"}))
        if not outages:
            return
        self.checked += 1
        if call.is_to("ec2", "terminate") and outages != "ec2":
            self.fail(f"terminate of {', '.join(call.args[0])} while {outages} does not answer")
        if call.is_to("cluster", "delete") and call.args[0] == "nodes" and self._runs(call.args[1].key):
            self.fail(f"deletion of node {call.args[1].key} while {outages} does not answer")
        if call.is_to("cluster", "delete") and call.args[0] == "nodeclaims" and outages == "state":
            claim = self.world.cluster.find("nodeclaims", call.args[1].key)
            if claim is not None and is_disrupted_by_choice(self.world, claim) and not self._leaves_anyway(claim):
                self.fail(f"deletion of {call.args[1].key} while {outages} does not answer")

    def _leaves_anyway(self, claim: NodeClaim) -> bool:
        """Whether somebody deletes its Node, as the cloud does when the instance has ended: then nobody chose that."""
        node = self.world.cluster.find("nodes", claim.node_name)
        return node is None or node.metadata.deletion_timestamp is not None

    def _runs(self, name: str) -> bool:
        node = self.world.cluster.find("nodes", name)
        return node is not None and instance_id(node.provider_id) in {instance.id for instance in live(self.world)}


class UidsStated(Invariant):
    """Nothing is deleted or evicted by its name alone."""

    name = "what is deleted or evicted is named by its uid"

    def before(self, call: Call) -> None:
        if call.is_to("cluster", "delete", "evict"):
            self.checked += 1
            target = call.args[0].metadata if call.action == "evict" else call.args[1]
            if not target.uid:
                self.fail(f"{call.action} of {target.key} without a uid")


class NothingOverwritten(Invariant):
    """What is written is made from what is there: a row of its version, a decision of the version of the cluster."""

    name = "no write replaces what its writer has not seen"

    def __init__(self, world: CampaignWorld) -> None:
        super().__init__(world)
        self._found: dict[str, int] = {}

    def before(self, call: Call) -> None:
        if call.is_to("state", "commit"):
            self._found[CLUSTER] = self.world.state.cluster_row.version
        elif call.is_to("state", "save"):
            key = sort_key(call.args[0])
            row = self.world.state.rows.get(key)
            self._found[key] = -1 if row is None else row.version

    def after(self, call: Call, answer: Any) -> None:
        if not call.is_to("state", "commit", "save"):
            return
        self.checked += 1
        seen = call.kwargs["expected_version"] if call.action == "commit" else call.args[0].version
        what = CLUSTER if call.action == "commit" else sort_key(call.args[0])
        found = self._found[what]
        if seen != found:
            self.fail(f"{what} was at version {found} and is replaced by what was made from version {seen}")


class InstancesEndFirst(Invariant):
    """A NodeClaim keeps its finalizer until its instance ends."""

    name = "no NodeClaim is let go before its instance ends"

    def before(self, call: Call) -> None:
        if not (call.is_to("cluster", "patch_metadata") and call.args[0] == "nodeclaims"):
            return
        if labels.FINALIZER in call.args[2].get("finalizers", (labels.FINALIZER,)):
            return
        self.checked += 1
        claim = self.world.cluster.find("nodeclaims", call.args[1].key)
        for instance in live(self.world):
            if claim is not None and instance_id(claim.provider_id) == instance.id:
                self.fail(f"{claim.name} loses its finalizer and {instance.id} is {instance.state}")


class ErrorsAreAnswers(Invariant):
    """An invocation ends with an error of an API or with none."""

    name = "no function ends with an error of its own"

    def after_step(self) -> None:
        self.checked += 1
        for error in self.world.errors:
            self.fail(f"{type(error).__name__}: {error}")
        self.world.errors.clear()
