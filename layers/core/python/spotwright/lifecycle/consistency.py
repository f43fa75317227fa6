"""Whether a node is as large as its NodeClaim says: the condition ConsistentStateFound, which informs and no more.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/consistency``.
"""

from typing import Final

from spotwright.lifecycle.steps import ConditionChange, false_condition, true_condition
from spotwright.model import resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node

CONDITION: Final = "ConsistentStateFound"
LEAST_PERCENT: Final = 90


def inconsistencies(claim: NodeClaim, node: Node) -> tuple[str, ...]:
    """A sentence for each requested resource of which the node has less than LEAST_PERCENT of what was expected."""
    return tuple(
        _sentence(name, claim.capacity[name], node.capacity.get(name, 0))
        for name, requested in sorted(claim.requests.items())
        if requested > 0
        and claim.capacity.get(name, 0) > 0
        and 100 * node.capacity.get(name, 0) < LEAST_PERCENT * claim.capacity[name]
    )


def _sentence(name: str, expected: int, found: int) -> str:
    expected_text, found_text = (resources.text({name: size})[name] for size in (expected, found))
    percent = 100 * found / expected
    return f"expected {expected_text} of resource {name}, but found {found_text} ({percent:.1f}% of expected)"


def consistency_condition(found: tuple[str, ...]) -> ConditionChange:
    if found:
        return false_condition(CONDITION, "ConsistencyCheckFailed", "Consistency Check Failed")
    return true_condition(CONDITION)
