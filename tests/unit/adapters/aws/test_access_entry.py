"""The installer's access to clusters that have no endpoint: those that are being created, or could not be."""

from typing import Any

import pytest

from spotwright.adapters.aws.eks.access_entry import TemporaryAccessEntry
from spotwright.errors import Unavailable


class Eks:
    """A cluster as EKS describes it. ``entries``: roles for which access entries were made."""

    def __init__(self, **cluster: Any) -> None:
        self._cluster = {"name": "dev", **cluster}
        self.entries: list[str] = []

    def describe_cluster(self, *, name: str) -> dict[str, Any]:
        return {"cluster": self._cluster}

    def create_access_entry(self, **entry: Any) -> None:
        self.entries.append(entry["principalArn"])


@pytest.mark.parametrize(
    "cluster",
    [
        {"status": "CREATING", "certificateAuthority": {}},
        {"status": "FAILED"},
        {"status": "CREATING", "endpoint": "https://e", "certificateAuthority": {}},
    ],
)
def test_a_cluster_without_an_endpoint_is_not_there_yet(cluster: dict[str, Any]) -> None:
    """Waited for by an installation, and abandoned by a deletion, which must not fail for it."""
    eks: Any = Eks(**cluster)
    sts: Any = None
    access = TemporaryAccessEntry(eks, sts, cluster="dev", role_arn="arn:aws:iam::123456789012:role/install")
    with pytest.raises(Unavailable, match=f"cluster dev is {cluster['status']} and has no endpoint yet"):
        access.open()
    assert not eks.entries
