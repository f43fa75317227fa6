"""Orphans: instances with the tags of a cluster that no launch row and no NodeClaim names."""

from datetime import timedelta
from typing import Final

# The launch row or the NodeClaim of a younger instance may not name it yet.
ORPHAN_AGE: Final = timedelta(seconds=60)
