"""Which Kubernetes the local control plane is: the usual version, or the one that an environment variable names."""

import os
import re

VARIABLE = "SPOTWRIGHT_KUBERNETES_VERSION"
# Its Go module is checked in.
USUAL_VERSION = "1.35.4"
# Minor version that EKS supports → the release that stands for it: the newest that proxy.golang.org gives out.
RELEASES = {
    "1.31": "1.31.14",
    "1.32": "1.32.13",
    "1.33": "1.33.13",
    "1.34": "1.34.4",
    "1.35": USUAL_VERSION,
    "1.36": "1.36.3",
}


class UnknownVersion(ValueError):
    """No version of Kubernetes is meant; the text says what may stand there."""


def kubernetes_version() -> str:
    """Major, minor and patch, such as 1.35.4. Raises UnknownVersion."""
    named = os.environ.get(VARIABLE) or USUAL_VERSION
    version = RELEASES.get(named, named)
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        raise UnknownVersion(
            f"{VARIABLE} is {named}: it may be {', '.join(RELEASES)}, or a version with its patch such as 1.35.4"
        )
    return version


def minor_version() -> str:
    """Major and minor, as EKS says a cluster's version. Raises UnknownVersion."""
    return kubernetes_version().rpartition(".")[0]
