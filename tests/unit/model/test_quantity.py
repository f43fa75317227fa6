"""Kubernetes quantities as integers."""

import pytest

from spotwright.model import quantity, resources


@pytest.mark.parametrize(
    ("resource", "text", "size"),
    [
        ("cpu", "1", 1000),
        ("cpu", "250m", 250),
        ("cpu", 0.1, 100),
        ("cpu", "1n", 1),
        ("cpu", "1.0005", 1001),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "128M", 128_000_000),
        ("memory", "1e3", 1000),
        ("memory", "100m", 1),
        ("memory", "+5", 5),
        ("pods", 110, 110),
        ("nvidia.com/gpu", "2", 2),
    ],
)
def test_a_quantity_is_an_integer_in_its_unit_rounded_up(resource: str, text: str | float, size: int) -> None:
    assert quantity.amount(resource, text) == size


@pytest.mark.parametrize("text", ["", "1 Gi", "1.5.2", "Gi", "1Kib", "ten", "1e", "--1", "9" * 5000, "\u0663"])
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="quantity"):
        quantity.amount("memory", text)


def test_a_quantity_beyond_64_bits_is_refused() -> None:
    with pytest.raises(quantity.QuantityError, match="range"):
        quantity.amount("memory", "10Ei")


@pytest.mark.parametrize(
    ("resource", "size", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 2**30, "1Gi"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 1000, "1000"),
        ("pods", 3, "3"),
    ],
)
def test_an_amount_is_written_as_people_do(resource: str, size: int, text: str) -> None:
    assert quantity.text(resource, size) == text
    assert quantity.amount(resource, text) == size


def test_an_unreadable_amount_names_its_resource() -> None:
    with pytest.raises(quantity.QuantityError, match=r"nvidia\.com/gpu"):
        resources.parse({"nvidia.com/gpu": "many"})


@pytest.mark.parametrize(
    ("resource", "sizes", "texts"),
    [
        ("cpu", (64_000, 8_000, 0), ["64", "8", "0"]),
        ("cpu", (64_000, 31_850), ["64000m", "31850m"]),
        ("memory", (2 * 2**30, 2**30), ["2Gi", "1Gi"]),
        ("memory", (2 * 2**30, 2**30 + 5), ["2048Mi", "1024Mi"]),
        ("memory", (2**30, 2**30 + 5 * 2**10, 0), ["1048576Ki", "1048581Ki", "0"]),
        ("memory", (2**30, 2**30 + 5), ["1073741824", "1073741829"]),
        ("ephemeral-storage", (10**9, 2**30), ["953Mi", "1024Mi"]),
        ("hugepages-2Mi", (2**22, 2**30), ["4Mi", "1024Mi"]),
        ("nvidia.com/gpu", (8, 1024), ["8", "1024"]),
    ],
)
def test_amounts_that_are_compared_are_in_one_unit_and_differ_where_they_do(
    resource: str, sizes: tuple[int, ...], texts: list[str]
) -> None:
    assert quantity.texts(resource, sizes) == texts
