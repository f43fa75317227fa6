"""What must hold: at every call of a function, and when the campaign is at rest.

An invariant sees every call (``before``, ``after``, ``refused``) and is asked after each step (``after_step``). At rest
(``unsettled``) it says what is not as it should be yet, which may take until the campaign's bound.
"""

from typing import Final

from tests.campaign.invariants.disruption import BudgetsKept, OnlySickRepaired, PodsAreAsked, ReplacementsFirst
from tests.campaign.invariants.invariant import Invariant
from tests.campaign.invariants.purchases import (
    LimitsKept,
    NoLeak,
    NothingBoughtTwice,
    PodsPlannedOnce,
    StormsChurnNothing,
    SurplusEnds,
)
from tests.campaign.invariants.rest import (
    EveryClaimEnds,
    NodesAreOpen,
    NoEmptyNode,
    NoPodWaits,
    RowsAndMessagesBounded,
    RowsEnd,
)
from tests.campaign.invariants.writes import (
    ErrorsAreAnswers,
    InstancesEndFirst,
    NothingOverwritten,
    NothingTakenInOutages,
    UidsStated,
)

INVARIANTS: Final[tuple[type[Invariant], ...]] = (
    NothingBoughtTwice, PodsPlannedOnce, NoLeak, EveryClaimEnds, NoPodWaits, NodesAreOpen, NoEmptyNode, RowsEnd,
    SurplusEnds, RowsAndMessagesBounded, PodsAreAsked, BudgetsKept, LimitsKept, NothingTakenInOutages, UidsStated,
    NothingOverwritten, InstancesEndFirst, ErrorsAreAnswers, OnlySickRepaired, StormsChurnNothing, ReplacementsFirst,
)  # fmt: skip
