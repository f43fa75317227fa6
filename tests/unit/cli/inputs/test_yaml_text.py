"""YAML means what ``kubectl`` reads in it, and every value has its line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.cli.inputs.yaml_text import YamlError, line_of, read_yaml, syntax_trees


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01", "2020-01-01"),
        ("1:30", "1:30"),
        ("y", True),
        ("No", False),
        ("'no'", "no"),
        ("0x1F", 31),
        ("017", 15),
        ("-0b11", -3),
        ("1_000", 1000),
        ("1e3", 1000.0),
        ("=", "="),
        ("~", None),
        ("18446744073709551616", 18446744073709551616.0),
        ("!!str 5", "5"),
        ("!Ref name", "name"),
        ("8080: a", {"8080": "a"}),
        ("on: a", {"true": "a"}),
        ("[&x {a: 1}, {<<: *x, b: 2}]", [{"a": 1}, {"a": 1, "b": 2}]),
        ("[&x {a: 1}, {<<: *x, a: 2}]", [{"a": 1}, {"a": 2}]),
    ],
)
def test_a_value_has_the_type_that_it_has_for_kubectl(text: str, value: object) -> None:
    (document,) = read_yaml(text)
    assert document.value == value
    assert type(document.value) is type(value)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("a: [", "did not find expected node content", 2),
        ("b: 1\na: {{ .Values.x }}", "a template, with {{ }}, must be rendered first", 2),
        ("a: &x [*x]", "nested too deeply, or in itself", 1),
        ("a: " + "[" * 100_000, "nested more than 200 levels deep", 1),
        ("- " * 100_000, "nested more than 200 levels deep", 1),
        ("\n".join(" " * depth + "a:" for depth in range(3000)), "nested more than 200 levels deep", 201),
        ("a\x00b", "unacceptable character", 0),
        ("a: \udc80", "not UTF-8", 0),
        ("a:\n  <<: 5", "<< takes a map", 2),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, words: str, line: int) -> None:
    with pytest.raises(YamlError) as error:
        list(read_yaml(text))
    assert words in str(error.value)
    assert error.value.line == line


def test_aliases_that_stand_for_too_much_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 100)}]" for n in range(1, 6)]
    several = "\n".join(lines) + "\nb: [" + ", ".join(["*a5"] * 5000) + "]"
    with pytest.raises(YamlError, match="aliases stand for too many values"):
        list(read_yaml(several))


def test_keys_that_are_there_twice_are_named_by_their_paths() -> None:
    (document,) = read_yaml("a: 1\nb:\n- c: 1\n  c: 2\na: 3")
    assert document.value == {"a": 3, "b": [{"c": 2}]}
    assert document.duplicates == (("b", 0, "c"), ("a",))


def test_a_line_is_that_of_the_key_or_of_what_is_nearest_above() -> None:
    tree = syntax_trees("kind: Pod\nspec:\n  containers:\n  - name: a\n    image: b\n")[0]
    paths = [(), ("kind",), ("spec", "containers", 0, "image"), ("spec", "containers", 0, "ports"), ("spec", "x", "y")]
    assert [line_of(tree, path) for path in paths] == [1, 1, 5, 4, 2]


@given(st.text(alphabet="ab01-:{}[]&*!|>'\"#%@,\n\t ?<~.", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlError):
        list(read_yaml(text))
