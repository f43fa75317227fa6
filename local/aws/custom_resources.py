"""Where the functions of CloudFormation custom resources send their answers: the ResponseURL."""

from local.aws.cloudformation.resource_types.custom import Answers
from local.aws.world import World


def add(world: World) -> None:
    answers = world.part(Answers)
    world.route("PUT", "/_local/custom-resources/<token>", answers.receive)
