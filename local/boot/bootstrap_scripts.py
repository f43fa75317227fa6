"""Reads user data that is a script: AL2's, which calls bootstrap.sh, and Windows' PowerShell.

Only what these scripts do with their arguments is imitated; other commands in them are taken to succeed.
Facts from awslabs/amazon-eks-ami (templates/al2/runtime/bootstrap.sh) and the EKS user guide on Windows nodes.
"""

import email
import re
import shlex
from collections.abc import Iterator
from email.message import Message

from local.boot.user_data import BootError, NodeConfig, decode_certificate_authority, decode_user_data

BOOTSTRAP = "/etc/eks/bootstrap.sh"
# Arguments of bootstrap.sh that take a value; it knows no other spelling, and no equal sign.
ARGUMENTS = frozenset(
    (
        "--apiserver-endpoint",
        "--b64-cluster-ca",
        "--dns-cluster-ip",
        "--use-max-pods",
        "--kubelet-extra-args",
        "--ip-family",
        "--local-disks",
        "--container-runtime",
        "--pause-container-version",
        "--service-ipv6-cidr",
    )
)
POWERSHELL = re.compile(r"<powershell>(.*?)</powershell>", re.DOTALL)
CALL = re.compile(r"^&\s*\$EKSBootstrapScriptFile\s+(.*)$", re.MULTILINE)
PARAMETER = re.compile(r"-([A-Za-z0-9]+)\s+(?:'((?:[^']|'')*)'|(\S+))")


def parse_al2(encoded: str) -> NodeConfig:
    """The node that AL2's user data makes. Raises BootError."""
    calls = [call for script in _shell_scripts(decode_user_data(encoded)) for call in _bootstrap_calls(script)]
    if not calls:
        raise BootError("NoBootstrap", f"no script in the user data calls {BOOTSTRAP}")
    return _of_bootstrap(calls[-1])


def _shell_scripts(data: bytes) -> Iterator[str]:
    """What cloud-init runs: the shell scripts of a MIME message, or the user data when it is one."""
    message = email.message_from_bytes(data)
    if message.get_content_maintype() != "multipart" or message["Content-Type"] is None:
        yield data.decode(errors="replace")
        return
    if message.defects or not message.is_multipart():
        raise BootError("MimeBroken", "not a MIME multipart message")
    for part in message.get_payload():
        if isinstance(part, Message) and part.get_content_type() == "text/x-shellscript":
            payload = part.get_payload(decode=True)
            yield payload.decode(errors="replace") if isinstance(payload, bytes) else ""


def _bootstrap_calls(script: str) -> Iterator[list[str]]:
    """The words after bootstrap.sh of every line that calls it."""
    if not script.startswith("#!"):
        raise BootError("NoInterpreter", "a script without #! in its first line is not run")
    for line in script.replace("\\\n", " ").splitlines():
        if BOOTSTRAP not in line:
            continue
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise BootError("ShellSyntax", f"{line[:80]!r}: {error}") from error
        if words and words[0] == BOOTSTRAP:
            yield words[1:]


def _of_bootstrap(words: list[str]) -> NodeConfig:
    name, given = "", {}
    rest = iter(words)
    for word in rest:
        if word in ARGUMENTS:
            given[word] = next(rest, "")
        elif word.startswith("--"):
            raise BootError("BootstrapArguments", f"{BOOTSTRAP} does not know {word}")
        else:
            name = word
    if not name:
        raise BootError("BootstrapArguments", "the cluster's name is missing")
    dns = given.get("--dns-cluster-ip")
    return NodeConfig(
        cluster_name=name,
        endpoint=given.get("--apiserver-endpoint", ""),
        certificate_authority=decode_certificate_authority(given.get("--b64-cluster-ca", "")),
        cidr="",
        kubelet={"clusterDNS": [dns]} if dns else {},
        flags=(given.get("--kubelet-extra-args", ""),),
        storage_strategy="RAID0" if given.get("--local-disks") == "raid0" else "",
    )


def parse_windows(encoded: str) -> NodeConfig:
    """The node that Windows' user data makes. Raises BootError."""
    block = POWERSHELL.search(decode_user_data(encoded).decode(errors="replace"))
    if block is None:
        raise BootError("NoPowerShell", "the user data has no <powershell> block")
    call = CALL.search(block[1])
    if call is None or "Start-EKSBootstrap.ps1" not in block[1]:
        raise BootError("NoBootstrap", "the PowerShell block does not call Start-EKSBootstrap.ps1")
    given = {name: (quoted or bare).replace("''", "'") for name, quoted, bare in PARAMETER.findall(call[1])}
    if not given.get("EKSClusterName"):
        raise BootError("BootstrapArguments", "-EKSClusterName is missing")
    dns = given.get("DNSClusterIP")
    return NodeConfig(
        cluster_name=given["EKSClusterName"],
        endpoint=given.get("APIServerEndpoint", ""),
        certificate_authority=decode_certificate_authority(given.get("Base64ClusterCA", "")),
        cidr="",
        kubelet={"clusterDNS": [dns]} if dns else {},
        flags=(given.get("KubeletExtraArgs", ""),),
        storage_strategy="",
    )
