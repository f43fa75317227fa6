"""Arithmetic in a class' kubelet configuration: what it gives, and what it refuses."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.aws.kubelet.cel import Variables, evaluate
from spotwright.aws.kubelet.cel_values import ExpressionError

VARIABLES: Variables = {
    "vcpus": 16, "memory_mib": 8192, "default_enis": 3, "ips_per_eni": 10, "max_pods": 29, "instance_type": "m5.large",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("((default_enis-1)*(ips_per_eni-1))+2", 20),
        ("min(250, 290)", 250),
        ("max(60, vcpus*30)", 480),
        ("min(110, 20 * 2)", 40),
        ("7 / 2 - 1", 2),
        ("-7 / 2", -3),
        ("-7 % 4", -3),
        ("2.5 * 3.0", 7),
        ("double(vcpus) * 0.3", 4),
        ("int('12') + size('ab')", 14),
        ("vcpus > 8 && !(memory_mib >= 10000) ? 1 : 2", 1),
        ("instance_type.startsWith('m5') ? 10 : 20", 10),
        ('instance_type in ["t3.large", "m5.large"] || 1 / 0 == 1 ? 1 : 0', 1),
        ("instance_type.endsWith('.metal') ? 1 : instance_type.contains('5.') ? 2 : 3", 2),
        ("max(1, 2, 3)", 3),
    ],
)
def test_an_expression_has_a_result(text: str, result: int) -> None:
    assert evaluate(text, VARIABLES) == result


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a value, found the end"),
        ("1 +", "expected a value, found the end"),
        ("(1", "expected ')', found the end"),
        ("1 2", "unexpected '2'"),
        ("1 $ 2", "cannot read '$ 2'"),
        ("cpus * 2", "unknown variable 'cpus'"),
        ("abs(1)", "unknown function 'abs'"),
        ("vcpus.bit()", "unknown method 'bit'"),
        ("vcpus * 1.5", "an integer * a double: the two do not mix"),
        ("1 / 0", "'1 / 0': division by zero"),
        ("1.0 / 0.0", "'1.0 / 0.0': the result is not a finite number"),
        ("9223372036854775807 + 1", "beyond 64 bits"),
        ("instance_type", "the result must be a number, found a string"),
        ("vcpus > 1", "the result must be a number, found a boolean"),
        ("vcpus ? 1 : 2", "takes true or false, not an integer"),
        ("min(1, 2.0)", "min does not take an integer, a double"),
        ("'a' - 'b'", "- does not take strings"),
        ("1 in 2", "in looks into a list, not into an integer"),
        ("int('a')", "int('a') is not a number that it can hold"),
        ("true < false", "< does not take a boolean"),
        ("(" * 60 + "1" + ")" * 60, "nested more than"),
        ("1+" * 1500 + "1", "at most 2000"),
    ],
)
def test_what_has_no_result_says_why(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate(text, VARIABLES)
    assert words in str(error.value)


@given(st.text(alphabet="0123456789.+-*/%()<>=!&|?:,[]'vcpusmin ", max_size=40))
def test_any_text_has_a_result_or_a_reason(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert isinstance(evaluate(text, VARIABLES), int)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_division_and_remainder_belong_together(dividend: int, divisor: int) -> None:
    whole = evaluate("a / b * b + a % b", {"a": dividend, "b": divisor})
    assert whole == dividend
