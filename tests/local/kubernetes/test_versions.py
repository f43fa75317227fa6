"""A version is the usual one, one that a minor version stands for, or one that is named whole."""

import re

import pytest

from local.kubernetes import binaries
from local.kubernetes.versions import (
    RELEASES,
    USUAL_VERSION,
    VARIABLE,
    UnknownVersion,
    kubernetes_version,
    minor_version,
)


@pytest.mark.parametrize(
    ("named", "version", "minor"),
    [("", USUAL_VERSION, "1.35"), ("1.34", RELEASES["1.34"], "1.34"), ("1.32.13", "1.32.13", "1.32")],
)
def test_the_version_is_the_one_that_is_named(
    named: str, version: str, minor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, named)
    assert (kubernetes_version(), minor_version()) == (version, minor)


@pytest.mark.parametrize("named", ["1.2", "v1.35", "latest", "1.35.x", "1.35.4 "])
def test_what_is_no_version_is_refused_with_what_may_stand_there(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, named)
    with pytest.raises(UnknownVersion, match=rf"{VARIABLE} is {re.escape(named)}: it may be .*1\.35.*, or a version"):
        kubernetes_version()


def test_the_module_that_is_checked_in_is_of_the_usual_version() -> None:
    module = (binaries.SOURCE_FOLDER / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{USUAL_VERSION}\n" in module
