"""The access entries of a cluster's node roles (NodeAccessPort); which installations made one stands in its tag.

Source: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateAccessEntry.html.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import NotFound
from spotwright.workflows.ports.installation import AccessEntry

if TYPE_CHECKING:
    from mypy_boto3_eks.client import EKSClient

#: Installers separated by spaces: a tag's value may not have commas.
INSTALLERS_TAG: Final = "spotwright.dev/installers"


class NodeAccessEntries:
    """See NodeAccessPort."""

    def __init__(self, eks: "EKSClient", *, cluster: str) -> None:
        self._eks = eks
        self.cluster = cluster

    def create(self, principal: str, type: str, installers: frozenset[str]) -> None:
        """Raises Conflict when the principal has an entry, InvalidRequest when EKS does not know it."""
        with translate_errors(f"CreateAccessEntry {principal}"):
            self._eks.create_access_entry(
                clusterName=self.cluster, principalArn=principal, type=type, tags=_tags(installers)
            )

    def find(self, principal: str) -> AccessEntry | None:
        try:
            with translate_errors(f"DescribeAccessEntry {principal}"):
                answer = self._eks.describe_access_entry(clusterName=self.cluster, principalArn=principal)
        except NotFound:
            return None
        entry = answer["accessEntry"]
        installers = frozenset((entry.get("tags") or {}).get(INSTALLERS_TAG, "").split())
        return AccessEntry(principal, entry["accessEntryArn"], entry.get("type", ""), installers)

    def tagged_entries(self) -> Iterator[AccessEntry]:
        """Entries of roles that installations made; a cluster has some ten entries, each is asked for."""
        with translate_errors("ListAccessEntries"):
            pages = self._eks.get_paginator("list_access_entries").paginate(clusterName=self.cluster)
            principals = [principal for page in pages for principal in page["accessEntries"] if ":role/" in principal]
        for principal in principals:
            entry = self.find(principal)
            if entry is not None and entry.installers:
                yield entry

    def tag(self, entry: AccessEntry, installers: frozenset[str]) -> None:
        with translate_errors(f"TagResource {entry.arn}"):
            self._eks.tag_resource(resourceArn=entry.arn, tags=_tags(installers))

    def delete(self, principal: str) -> None:
        """No error when there is no entry."""
        with suppress(NotFound), translate_errors(f"DeleteAccessEntry {principal}"):
            self._eks.delete_access_entry(clusterName=self.cluster, principalArn=principal)


def _tags(installers: frozenset[str]) -> dict[str, str]:
    return {INSTALLERS_TAG: " ".join(sorted(installers))}
