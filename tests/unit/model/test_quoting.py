"""How messages show a value that a user wrote."""

import pytest

from spotwright.model.quoting import quote


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("web", "'web'"),
        ("a\tb", "'a\\tb'"),
        (None, "null"),
        (True, "true"),
        ({"a": [1]}, '{"a":[1]}'),
        (10**30, "1" + "0" * 30),
        (float("inf"), ".inf"),
        (float("-inf"), "-.inf"),
        (float("nan"), ".nan"),
        ("x" * 100, f"'{'x' * 76}..."),
    ],
)
def test_text_is_in_quotes_and_everything_else_as_manifests_state_it(value: object, shown: str) -> None:
    assert quote(value) == shown
