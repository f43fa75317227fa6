"""What is said of spot pools that were in trouble."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.disruption.spot_return import describe_trouble
from spotwright.model import labels
from spotwright.model.snapshot import OfferingHistory
from spotwright.scheduling.plan import NewNode
from tests.unit.disruption.builders import NOW, snapshot

SPOT_NODE = NewNode(
    nodepool="default",
    nodeclass="default",
    pods=(),
    instance_types=("m5.large",),
    requirements=(),
    labels={},
    taints=(),
    startup_taints=(),
    requests={},
    price_picousd_per_hour=0,
    capacity_type=labels.SPOT,
    zones=("z1",),
)


@pytest.mark.parametrize(
    ("ago", "said"), [(timedelta(minutes=4), "4 minutes ago"), (-timedelta(minutes=5), "0 minutes ago")]
)
def test_trouble_lies_never_ahead_whatever_another_clock_says(ago: timedelta, said: str) -> None:
    troubled_at_ms = int((NOW - ago).timestamp() * 1000)
    history = OfferingHistory("m5.large", "z1", troubled_at_ms=troubled_at_ms)
    seen = msgspec.structs.replace(snapshot(), offering_histories=(history,))
    text = describe_trouble([SPOT_NODE], seen)
    assert f"spot m5.large in z1 had no capacity or was interrupted {said}" in text
