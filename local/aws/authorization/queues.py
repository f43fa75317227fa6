"""Queue policies, evaluated for every caller: a deny there wins, and an allow there is one of the caller's own account.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

import json
from typing import Any

from moto.sqs.models import sqs_backends

from local.aws.calls.request import AwsRequest
from local.aws.emulator import Emulator
from local.aws.iam.policies import AccessRequest, EvaluationResult, evaluate
from local.aws.iam.trust_policies import names_principal
from local.aws.strictness import Rule
from local.aws.sts.callers import Caller


def verdict(emulator: Emulator, request: AwsRequest, caller: Caller, access: AccessRequest) -> EvaluationResult:
    """What the policy of the queue that is called says of the caller."""
    if request.service != "sqs" or not emulator.strictness.holds(Rule.QUEUE_POLICIES):
        return EvaluationResult.IMPLICIT_DENY
    principals = {"*", caller.arn, caller.role or caller.arn}
    statements = [
        # Every statement of a queue's policy is about that queue.
        {key: value for key, value in statement.items() if key not in ("Resource", "Principal")} | {"Resource": "*"}
        for statement in _statements(emulator, request)
        if names_principal(statement.get("Principal"), principals)
    ]
    return evaluate([{"Statement": statements}], access)


def _statements(emulator: Emulator, request: AwsRequest) -> list[Any]:
    name = str(request.params.get("QueueUrl") or "").rsplit("/", 1)[-1]
    queue = sqs_backends[emulator.account][emulator.region].queues.get(name)
    policy = getattr(queue, "policy", None)
    found = (policy if isinstance(policy, dict) else json.loads(policy or "{}")).get("Statement") or []
    return found if isinstance(found, list) else [found]
