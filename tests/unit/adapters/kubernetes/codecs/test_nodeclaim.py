"""NodeClaims into the model."""

import pytest

from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim

BROKEN = [
    ({"spec": {"expireAfter": "soon"}}, "NodeClaim c: spec.expireAfter: 'soon' is not a duration"),
    (
        {"status": {"capacity": {"cpu": "many"}}},
        "NodeClaim c: status.capacity.cpu: 'many' is not a Kubernetes quantity",
    ),
    ({"spec": {"taints": [{"effect": "NoSchedule"}]}}, "malformed"),
    ({"spec": "text"}, "malformed"),
]


@pytest.mark.parametrize(("parts", "said"), BROKEN)
def test_a_claim_that_cannot_be_read_says_so_and_is_nobodys(parts: dict[str, object], said: str) -> None:
    whole = {"kind": "NodeClaim", "metadata": {"name": "c"}, "status": {"providerID": "aws:///z/i-1"}}
    nodeclaim = decode_nodeclaim(whole | parts)
    assert said in nodeclaim.read_error
    assert not nodeclaim.is_managed
    assert nodeclaim.provider_id == ("" if "status" in parts else "aws:///z/i-1")
