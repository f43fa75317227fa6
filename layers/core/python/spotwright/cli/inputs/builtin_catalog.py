"""The built-in catalog: instance types of us-east-1 for an EC2NodeClass with defaults, without a call to AWS.

tools/builtin_catalog.py writes its file and that of ``builtin_region``.
"""

import zlib
from pathlib import Path
from typing import Final

from spotwright.aws.instance_types import catalog_codec
from spotwright.model.ec2.instance_type import Catalog

BUILTIN_REGION: Final = "us-east-1"
CATALOG_FILE: Final = Path(__file__).with_name(f"{BUILTIN_REGION}.json.z")
BUILTIN_DESCRIPTION: Final = (
    "us-east-1, built in: on-demand prices of July 2026, spot assumed at 35 to 45 % of them"
    " (another catalog: --catalog FILE)"
)


def load_builtin_catalog() -> Catalog:
    """All types that EC2 sells in us-east-1, zones a to c, for an EC2NodeClass with defaults."""
    return catalog_codec.decode(zlib.decompress(CATALOG_FILE.read_bytes()))
