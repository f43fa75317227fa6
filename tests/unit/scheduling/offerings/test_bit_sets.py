"""Sets of offerings as integers."""

from hypothesis import given
from hypothesis import strategies as st

from spotwright.scheduling.offerings.bit_sets import iterate_bits, renumber, to_bits

numberings = st.integers(1, 40).flatmap(lambda count: st.permutations(range(count)))


@given(numberings, st.data())
def test_a_set_is_renumbered_member_by_member(numbers: list[int], data: st.DataObject) -> None:
    members = data.draw(st.sets(st.sampled_from(range(len(numbers)))))
    renumbered = renumber(to_bits(sorted(members)), numbers)
    assert list(iterate_bits(renumbered)) == sorted(numbers[member] for member in members)
