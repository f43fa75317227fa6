"""CloudFormation: stacks of real resources, made by calls to this very process, with rollback and events.

moto's own engine makes resources while it resolves references, skips what it does not know, and cannot
roll back; this one replaces it whole.
"""

from local.aws import bucket_policies
from local.aws.cloudformation import api_change_sets, api_stacks
from local.aws.cloudformation.stacks import Stacks
from local.aws.world import World


def add(world: World) -> None:
    bucket_policies.install()
    stacks = world.part(Stacks)
    api_stacks.add(stacks)
    api_change_sets.add(stacks)
    # The CDK asks CloudTrail why a deployment failed; the call log and the stack's events know better.
    world.front("cloudtrail", "LookupEvents", lambda request: request.reply({"Events": []}))
