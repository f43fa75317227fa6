"""What the scenarios asked of IAM."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.grants import Grant
from local.aws.authorization.authorizer import AuthorizationDecision
from local.aws.iam.policies import AccessRequest, EvaluationResult, evaluate
from tests.rights.scenarios import SCENARIOS, RightsAccount, grants, policy_document


@dataclass(frozen=True)
class Recording:
    """``decisions``: scenario → what IAM decided on its calls; ``grants``: role → its statements."""

    account: RightsAccount
    decisions: Mapping[str, tuple[AuthorizationDecision, ...]]
    grants: Mapping[str, tuple[Grant, ...]]


def record(account: RightsAccount) -> Recording:
    asked = {}
    for name, scenario in SCENARIOS.items():
        account.aws.authorization_log.decisions.clear()
        scenario(account)
        asked[name] = tuple(account.aws.authorization_log.decisions)
    return Recording(account, asked, grants())


def role_of(question: AuthorizationDecision) -> str:
    """The role of ``arn:aws:sts::<account>:assumed-role/<role>/<session>``."""
    return question.principal.split("/")[1]


def denied_decisions(
    statements: Iterable[Grant], questions: Iterable[AuthorizationDecision]
) -> list[AuthorizationDecision]:
    """The questions that a role with these statements alone would be answered no."""
    policy = policy_document(*statements)
    return [decision for decision in questions if not any(_allowed(policy, access) for access in decision.alternatives)]


def _allowed(policy: Mapping[str, object], access: AccessRequest) -> bool:
    return evaluate([policy], access) is EvaluationResult.ALLOWED
