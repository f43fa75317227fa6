"""Sets of small numbers as integers: bit i is set where i is in the set. Offerings are numbered from the cheapest."""

from collections.abc import Iterator, Sequence


def to_bits(numbers: Sequence[int]) -> int:
    """The set of these numbers, which ascend; quick for many."""
    if not numbers:
        return 0
    content = bytearray(numbers[-1] // 8 + 1)
    for number in numbers:
        content[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(content, "little")


def iterate_bits(bits: int) -> Iterator[int]:
    """The numbers of a set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def renumber(bits: int, numbers: Sequence[int]) -> int:
    """The set in which every number i has become ``numbers[i]``; quick for many."""
    return to_bits(sorted([number for number, bit in zip(numbers, reversed(f"{bits:b}"), strict=False) if bit == "1"]))
