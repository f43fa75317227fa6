"""What runs in a new local cluster: the EKS add-ons and one fail-closed admission webhook."""

import base64
from pathlib import Path
from string import Template

from local.kubernetes.control_plane import ControlPlane, service_address

MANIFESTS = Path(__file__).parent / "manifests"
# Image of the webhook's pod, which the pod runner starts as a real process.
WEBHOOK_IMAGE = "registry.local/policy-webhook"


def install_addons(plane: ControlPlane, *, webhook_port: int, pod_identity_port: int) -> None:
    """Apply every manifest of the folder; the webhooks' servers listen, or will listen, on these ports."""
    pair = plane.authority.issue_server_certificate("policy-webhook", ["127.0.0.1"])
    values = {
        "clusterDns": service_address(10),
        "port": str(webhook_port),
        "podIdentityPort": str(pod_identity_port),
        "certificate": base64.b64encode(pair.certificate.read_bytes()).decode(),
        "key": base64.b64encode(pair.key.read_bytes()).decode(),
        "authority": plane.certificate_authority,
    }
    for path in sorted(MANIFESTS.glob("*.yaml")):
        plane.api.apply_all(Template(path.read_text()).substitute(values))
