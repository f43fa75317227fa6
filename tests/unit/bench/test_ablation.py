"""Every switch of the ablation still finds what it switches off, and puts it back."""

import pytest

from bench.ablation.switches import SWITCHES, Switch, switched_off


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_a_switch_replaces_an_attribute_of_its_owner_for_a_while(switch: Switch) -> None:
    before = vars(switch.owner)[switch.attribute]
    assert before != switch.replacement
    with switched_off(switch):
        assert vars(switch.owner)[switch.attribute] is switch.replacement
    assert vars(switch.owner)[switch.attribute] is before
