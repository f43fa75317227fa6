"""The certificate authorities of AWS's endpoints, in a file of their own: the SDK reads its file for every connection.

All that botocore trusts takes 25 ms of a processor to read, each time; these take three. AWS's endpoints have
certificates of Amazon Trust Services (https://www.amazontrust.com/repository/), which AWS asks to be trusted by these
five roots; DigiCert's are for endpoints in other partitions than `aws`.
"""

import re
from pathlib import Path

FILE = "aws_authorities.pem"
#: What functions are told: where Lambda unzips the layer.
PATH = f"/opt/python/{FILE}"

AUTHORITIES = (
    "Amazon Root CA 1",
    "Amazon Root CA 2",
    "Amazon Root CA 3",
    "Amazon Root CA 4",
    "Starfield Services Root Certificate Authority - G2",
    "DigiCert Global Root G2",
    "DigiCert Global Root G3",
)

# botocore tells of each authority in comments before its certificate.
_ENTRY = re.compile(
    r"# Subject: CN=(?P<name>[^=]*?)(?: [A-Z]+=.*)?\n(?:#.*\n)*(?P<pem>-----BEGIN[^#]*?-----\n)(?=\n|#|\Z)"
)


def write_authorities(python: Path) -> None:
    """Writes the file into a tree with botocore. Raises ValueError when botocore lacks one of them."""
    found = {entry["name"]: entry["pem"] for entry in _ENTRY.finditer((python / "botocore/cacert.pem").read_text())}
    if missing := [name for name in AUTHORITIES if name not in found]:
        raise ValueError(f"layer: botocore has no {', '.join(missing)} (layers/core/authorities.py)")
    (python / FILE).write_text("".join(f"# {name}\n{found[name]}" for name in AUTHORITIES))
