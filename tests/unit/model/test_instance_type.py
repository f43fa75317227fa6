"""Which instance types are exotic."""

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, is_exotic
from spotwright.model.requirements import from_labels
from spotwright.simulation import builders

GENERAL = builders.instance_type("m5.large", 2, 8, on_demand=0.1)


def with_label(key: str) -> InstanceType:
    requirements = from_labels({labels.INSTANCE_PREFIX + key: "1"})
    return msgspec.structs.replace(GENERAL, requirements=requirements)


@pytest.mark.parametrize(
    ("instance_type", "exotic"),
    [
        (GENERAL, False),
        (msgspec.structs.replace(GENERAL, name="m5.metal"), True),
        (msgspec.structs.replace(GENERAL, name="c7i.metal-24xl"), True),
        (msgspec.structs.replace(GENERAL, capacity=GENERAL.capacity | {"aws.amazon.com/neuron": 1}), True),
        (msgspec.structs.replace(GENERAL, capacity=GENERAL.capacity | {"nvidia.com/gpu": 0}), False),
        (with_label("gpu-count"), True),
        (with_label("accelerator-count"), True),
        (with_label("cpu"), False),
    ],
)
def test_metal_and_accelerators_are_exotic_however_they_show(instance_type: InstanceType, exotic: bool) -> None:
    assert is_exotic(instance_type) is exotic
