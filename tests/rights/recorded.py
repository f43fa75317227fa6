"""What the scenarios asked of IAM."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.grants import Grant
from local.aws.iam import Question
from local.aws.iam_policy import Access, Verdict, verdict
from tests.rights.scenarios import SCENARIOS, World, document, grants


@dataclass(frozen=True)
class Recorded:
    """``asked``: scenario → the questions its calls put to IAM; ``grants``: role → its statements."""

    world: World
    asked: Mapping[str, tuple[Question, ...]]
    grants: Mapping[str, tuple[Grant, ...]]


def record(world: World) -> Recorded:
    asked = {}
    for name, scenario in SCENARIOS.items():
        world.account.questions.asked.clear()
        scenario(world)
        asked[name] = tuple(world.account.questions.asked)
    return Recorded(world, asked, grants())


def role_of(question: Question) -> str:
    """The role of ``arn:aws:sts::<account>:assumed-role/<role>/<session>``."""
    return question.principal.split("/")[1]


def refused(statements: Iterable[Grant], questions: Iterable[Question]) -> list[Question]:
    """The questions that a role with these statements alone would be answered no."""
    policy = document(*statements)
    return [one for one in questions if not any(_allowed(policy, access) for access in one.alternatives)]


def _allowed(policy: Mapping[str, object], access: Access) -> bool:
    return verdict([policy], access) is Verdict.ALLOWED
