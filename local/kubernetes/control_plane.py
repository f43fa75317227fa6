"""The processes of a control plane: what each is called with, and when each is ready."""

import base64
import ipaddress
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import urllib3

from local.kubernetes.api import KubernetesApi, lenient_context
from local.kubernetes.binaries import Binaries
from local.kubernetes.certificates import CertificateAuthority, KeyIdentifiers, KeyPair, create_service_account_keys
from local.kubernetes.kubeconfig import certificate_user, write_kubeconfig
from local.ports import Ports
from local.processes import Processes

SERVICE_CIDR = "172.20.0.0/16"
# kwok numbers pods from here: a secondary range of a VPC, as custom networking uses it.
POD_CIDR = "100.64.0.0/16"
# The label of nodes whose kubelet kwok plays. It has to be a label: kwok filters annotations on its own
# side and does not notice when one is taken off again.
KUBELET_LABEL = "local.spotwright.dev/kubelet"
# A part that ends is noticed at once; on a machine with other work they take a while.
READY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ControlPlaneCredentials:
    """Certificates of the control plane's parts, and the kubeconfig of its administrator."""

    authority: CertificateAuthority
    server: KeyPair
    service_accounts: KeyPair
    admin: Path
    controller_manager: Path
    scheduler: Path


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane. `endpoint` is its URL, `kubeconfig` an administrator's."""

    endpoint: str
    authority: CertificateAuthority
    kubeconfig: Path
    api: KubernetesApi

    @property
    def certificate_authority(self) -> str:
        """The CA certificate as EKS gives it: base64 of the PEM text."""
        return base64.b64encode(self.authority.pem).decode()


def service_address(offset: int) -> str:
    """An address of the service range; 1 is the API server, 10 the cluster's DNS."""
    return str(ipaddress.ip_network(SERVICE_CIDR)[offset])


def issue_credentials(folder: Path, endpoint: str, identifiers: KeyIdentifiers) -> ControlPlaneCredentials:
    """Make every certificate and kubeconfig anew in `folder`."""
    authority = CertificateAuthority(folder, identifiers)
    hosts = ["127.0.0.1", "localhost", service_address(1), "kubernetes", "kubernetes.default.svc"]

    def kubeconfig(name: str, user: str, group: str | None = None) -> Path:
        path = folder / f"{name}.kubeconfig"
        entry = certificate_user(authority.issue_client_certificate(name, user=user, group=group))
        write_kubeconfig(path, server=endpoint, certificate_authority=authority.pem, user=entry)
        return path

    return ControlPlaneCredentials(
        authority,
        authority.issue_server_certificate("kube-apiserver", hosts),
        create_service_account_keys(folder),
        kubeconfig("admin", "local-admin", "system:masters"),
        kubeconfig("kube-controller-manager", "system:kube-controller-manager"),
        kubeconfig("kube-scheduler", "system:kube-scheduler"),
    )


class ControlPlaneStarter:
    """Starts the parts of one control plane in `folder`, in the order in which they need each other."""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        processes: Processes,
        ports: Ports,
        identifiers: KeyIdentifiers = KeyIdentifiers.INCLUDED,
    ) -> None:
        self._folder = folder
        self._binaries = binaries
        self._processes = processes
        self._ports = ports
        self._port = ports.take()
        self.endpoint = f"https://127.0.0.1:{self._port}"
        self.credentials = issue_credentials(folder / "pki", self.endpoint, identifiers)

    def start(
        self, *, aws_endpoint: str, cluster: str, environment: Mapping[str, str], node_grace_seconds: int = 50
    ) -> ControlPlane:
        """Start everything and wait until it works. Raises ProcessEnded.

        `node_grace_seconds`: how long a Node may go without a heartbeat of its kubelet.
        """
        webhook = self._authenticator(aws_endpoint, cluster, environment)
        self._api_server(self._etcd(), webhook)
        api = KubernetesApi(self.credentials.admin)
        self._processes.wait("kube-apiserver", api.is_ready, timeout_seconds=READY_SECONDS)
        healthy = [self._controller_manager(node_grace_seconds), self._scheduler(), self._kwok()]
        for name, ready in healthy:
            self._processes.wait(name, ready, timeout_seconds=READY_SECONDS)
        account = "/api/v1/namespaces/kube-system/serviceaccounts/default"
        self._processes.wait(
            "kube-controller-manager", lambda: api.find(account) is not None, timeout_seconds=READY_SECONDS
        )
        return ControlPlane(self.endpoint, self.credentials.authority, self.credentials.admin, api)

    def _etcd(self) -> str:
        client = f"http://127.0.0.1:{self._ports.take()}"
        peer = f"http://127.0.0.1:{self._ports.take()}"
        self._run(
            "etcd",
            "--name=local",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=local={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        return client

    def _authenticator(self, aws_endpoint: str, cluster: str, environment: Mapping[str, str]) -> Path:
        port = self._ports.take()
        command = [sys.executable, "-m", "local.kubernetes.token_webhook", "--port", str(port)]
        command += ["--aws", aws_endpoint, "--cluster", cluster]
        self._processes.start("authenticator", command, environment=environment)
        path = self._folder / "pki" / "authenticator.kubeconfig"
        write_kubeconfig(
            path,
            server=f"http://127.0.0.1:{port}/",
            certificate_authority=self.credentials.authority.pem,
            user={},
        )
        return path

    def _api_server(self, etcd: str, webhook: Path) -> None:
        ids = self.credentials
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={ids.server.certificate}",
            f"--tls-private-key-file={ids.server.key}",
            f"--client-ca-file={ids.authority.pair.certificate}",
            f"--requestheader-client-ca-file={ids.authority.pair.certificate}",
            # Nobody has a certificate of this name: there are no aggregated API servers.
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--service-account-issuer={self.endpoint}",
            f"--service-account-key-file={ids.service_accounts.certificate}",
            f"--service-account-signing-key-file={ids.service_accounts.key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--authentication-token-webhook-config-file={webhook}",
            "--authentication-token-webhook-version=v1",
            # Short, so that an access entry that was taken away stops working at once.
            "--authentication-token-webhook-cache-ttl=5s",
            # A loopback address may not stand in Endpoints.
            "--endpoint-reconciler-type=none",
            "--profiling=false",
        )

    def _controller_manager(self, node_grace_seconds: int) -> tuple[str, Callable[[], bool]]:
        ids = self.credentials
        return self._controller(
            "kube-controller-manager",
            ids.controller_manager,
            f"--service-account-private-key-file={ids.service_accounts.key}",
            f"--root-ca-file={ids.authority.pair.certificate}",
            f"--cluster-signing-cert-file={ids.authority.pair.certificate}",
            f"--cluster-signing-key-file={ids.authority.pair.key}",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=false",
            f"--node-monitor-grace-period={node_grace_seconds}s",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        )

    def _scheduler(self) -> tuple[str, Callable[[], bool]]:
        return self._controller(
            "kube-scheduler", self.credentials.scheduler, "--kube-api-qps=200", "--kube-api-burst=400"
        )

    def _controller(self, name: str, kubeconfig: Path, *flags: str) -> tuple[str, Callable[[], bool]]:
        port = self._ports.take()
        self._run(
            name,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.credentials.server.certificate}",
            f"--tls-private-key-file={self.credentials.server.key}",
            "--leader-elect=false",
            "--profiling=false",
            *flags,
        )
        return name, lambda: _is_healthy(f"https://127.0.0.1:{port}/healthz", self.credentials.authority.pem)

    def _kwok(self) -> tuple[str, Callable[[], bool]]:
        port = self._ports.take()
        self._run(
            "kwok",
            f"--kubeconfig={self.credentials.admin}",
            f"--config={Path(__file__).with_name('stages.yaml')}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={KUBELET_LABEL}=kwok",
            f"--cidr={POD_CIDR}",
            "--node-ip=127.0.0.1",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{port}",
        )
        return "kwok", lambda: _is_healthy(f"http://127.0.0.1:{port}/healthz", None)

    def _run(self, name: str, *flags: str) -> None:
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
        self._processes.start(name, [self._binaries.path(name), *flags], environment=environment)


def _is_healthy(url: str, authority: bytes | None) -> bool:
    context = lenient_context(authority) if authority else None
    with urllib3.PoolManager(ssl_context=context, retries=False, timeout=10.0) as pool:
        try:
            return pool.request("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            return False
