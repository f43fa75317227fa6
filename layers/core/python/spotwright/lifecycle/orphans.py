"""Instances that carry the tags of a cluster and that neither a launch row nor a NodeClaim knows."""

from datetime import timedelta
from typing import Final

# An instance younger than this may still be on its way into its launch row or claim.
ORPHAN_AGE: Final = timedelta(seconds=60)
