"""Names of NodeClaims: derived, distinct, and names that the API server takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.decisions import decision
from spotwright.decisions.decision import claim_names

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
POOL_NAMES = st.from_regex(DNS_SUBDOMAIN, fullmatch=True).filter(lambda name: len(name) <= 253)


@given(POOL_NAMES, st.text("0123456789abcdef", min_size=16, max_size=16), st.integers(0, 30))
def test_every_name_is_distinct_valid_and_derived(pool: str, launch: str, count: int) -> None:
    names = claim_names(pool, launch, count)
    assert len(set(names)) == count
    assert all(DNS_SUBDOMAIN.fullmatch(name) and len(name) <= 63 for name in names)
    assert claim_names(pool, launch, count) == names


def test_a_name_says_its_pool() -> None:
    (name,) = claim_names("general-purpose", "0123456789abcdef", 1)
    assert re.fullmatch(r"general-purpose-[b-df-hj-np-tv-xz2-9]{10}", name)


def test_a_suffix_that_occurs_again_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """27 suffixes of a letter each: all of them are used before a name would repeat."""
    monkeypatch.setattr(decision, "_SUFFIX_LENGTH", 1)
    assert len(set(claim_names("default", "launch", 27))) == 27


def test_names_of_many_launches_do_not_meet() -> None:
    names = {name for launch in range(20) for name in claim_names("default", f"{launch:016x}", 5000)}
    assert len(names) == 100_000
