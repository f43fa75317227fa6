"""The local stack as a whole: instances that EC2 launches join, log-ins are those of EKS, nothing is left."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from botocore.signers import RequestSigner

from local.kubernetes.api import KubernetesApi
from local.stack import Stack, StackInUse, StackOptions

pytestmark = pytest.mark.stack

# What a pod does to show who it is in AWS.
WHOAMI = """
import boto3, json, os, time
arn = boto3.client("sts").get_caller_identity()["Arn"]
with open("found.new", "w") as file:
    file.write(arn)
os.rename("found.new", "found.txt")
time.sleep(600)
"""
COMMANDS = {"whoami": [sys.executable, "-c", textwrap.dedent(WHOAMI)]}


def until(holds: Callable[[], object], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.2)


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    options = StackOptions(pod_commands=COMMANDS, boot_seconds=0.5, ready_seconds=0.5, removal_seconds=1.0)
    with Stack.start(tmp_path_factory.mktemp("stack"), options=options) as running:
        yield running


def client(stack: Stack, service: str, **credentials: str) -> Any:
    """A boto3 client of the stack's AWS, as its administrator unless `credentials` are given."""
    keys = {"aws_access_key_id": "local-admin", "aws_secret_access_key": "local-admin"}
    where = {"endpoint_url": stack.aws_endpoint, "region_name": stack.region}
    return boto3.Session().client(service, **where, **(credentials or keys))  # type: ignore[call-overload]


def user_data(stack: Stack) -> str:
    """As a node of the stack's cluster needs it."""
    cluster = client(stack, "eks").describe_cluster(name=stack.cluster)["cluster"]
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": cluster["name"],
                "apiServerEndpoint": cluster["endpoint"],
                "certificateAuthority": cluster["certificateAuthority"]["data"],
                "cidr": cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
            },
            "kubelet": {"config": {"maxPods": 29}, "flags": ["--node-labels=team=a"]},
        },
    }
    boundary, kind = 'multipart/mixed; boundary="//"', "application/node.eks.aws"
    body = f"--//\nContent-Type: {kind}\n\n{yaml.safe_dump(document)}\n--//--\n"
    return f"MIME-Version: 1.0\nContent-Type: {boundary}\n\n{body}"


@pytest.fixture(scope="module")
def profile(stack: Stack) -> str:
    """An instance profile whose role may join the cluster."""
    role = f"KarpenterNodeRole-{stack.cluster}"
    iam = client(stack, "iam")
    iam.create_instance_profile(InstanceProfileName="nodes")
    iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName=role)
    arn = f"arn:aws:iam::{stack.account}:role/{role}"
    client(stack, "eks").create_access_entry(clusterName=stack.cluster, principalArn=arn, type="EC2_LINUX")
    return "nodes"


def once_known(call: Callable[[], Any], refusal: str) -> Any:
    """The answer of a call about something new, which EC2 refuses with these words while it does not know it."""
    answers: list[Any] = []

    def is_answered() -> bool:
        try:
            answers.append(call())
        except ClientError as error:
            if refusal not in str(error):
                raise
        return bool(answers)

    until(is_answered)
    return answers[0]


@contextlib.contextmanager
def launched(stack: Stack, profile: str, data: str) -> Iterator[str]:
    """A running m5.large with this user data; terminated in the end."""
    name = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id"
    image = client(stack, "ssm").get_parameter(Name=name)["Parameter"]["Value"]
    ec2 = client(stack, "ec2")
    discovery = [{"Name": "tag:karpenter.sh/discovery", "Values": [stack.cluster]}]
    subnet = ec2.describe_subnets(Filters=discovery)["Subnets"][0]["SubnetId"]
    request = {"ImageId": image, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1, "SubnetId": subnet}
    answer = once_known(
        lambda: ec2.run_instances(**request, UserData=data, IamInstanceProfile={"Name": profile}),
        "Invalid IAM Instance Profile name",
    )
    instance = str(answer["Instances"][0]["InstanceId"])
    yield instance
    once_known(lambda: ec2.terminate_instances(InstanceIds=[instance]), "does not exist")
    until(lambda: not nodes(stack))


def nodes(stack: Stack) -> list[dict[str, Any]]:
    return list(KubernetesApi(stack.kubeconfig).get("/api/v1/nodes")["items"])


def is_ready(node: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


def running(stack: Stack) -> list[str]:
    """Names of the pods that run, without what the controllers append."""
    pods = KubernetesApi(stack.kubeconfig).get("/api/v1/pods")["items"]
    alive = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    return sorted(pod["metadata"].get("generateName", pod["metadata"]["name"]) for pod in alive)


def guarded(stack: Stack) -> subprocess.CompletedProcess[str]:
    """Try to create something that the admission webhook would allow."""
    labels = {"team": "a"}
    metadata = {"generateName": "guarded-", "namespace": "guarded", "labels": labels}
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return stack.kubectl("create", "-f", "-", input=json.dumps(value), check=False)


def test_every_part_runs_and_logs_to_one_folder(stack: Stack) -> None:
    assert stack.exit_codes() == {}
    assert {f"{name}.log" for name in stack.pids()} <= {path.name for path in stack.logs.iterdir()}
    assert {"aws", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} <= stack.pids().keys()


def test_an_instance_with_right_user_data_joins_and_what_waited_runs(stack: Stack, profile: str) -> None:
    """CoreDNS, metrics-server, the webhook and the daemons; without a node the webhook blocks, with it not."""
    stack.kubectl("create", "namespace", "guarded")
    stack.kubectl("label", "namespace", "guarded", "policy.local/guarded=true")
    assert running(stack) == []
    assert "connection refused" in guarded(stack).stderr
    with launched(stack, profile, user_data(stack)) as instance:
        until(lambda: any(map(is_ready, nodes(stack))))
        node = nodes(stack)[0]
        assert node["spec"]["providerID"] == f"aws:///{stack.region}a/{instance}"
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m5.large"
        assert node["metadata"]["labels"]["team"] == "a"
        until(lambda: len(running(stack)) == 6)
        until(lambda: guarded(stack).returncode == 0)
    until(lambda: guarded(stack).returncode != 0)


def test_an_instance_with_wrong_user_data_does_not_join_and_the_reason_is_on_file(stack: Stack, profile: str) -> None:
    wrong = user_data(stack).replace(f"name: {stack.cluster}", f"name: {stack.cluster}x")
    with launched(stack, profile, wrong) as instance:
        refusals = stack.logs / "boot-refusals.jsonl"
        until(lambda: refusals.exists() and instance in refusals.read_text())
        assert nodes(stack) == []
    entry = json.loads(refusals.read_text().splitlines()[-1])
    assert (entry["instance"], entry["code"]) == (instance, "ClusterName")


def eks_token(stack: Stack, credentials: dict[str, str], cluster: str) -> str:
    """What `aws eks get-token` makes."""
    sts = client(stack, "sts", **credentials)
    signer = RequestSigner(
        sts.meta.service_model.service_id,
        stack.region,
        "sts",
        "v4",
        sts._request_signer._credentials,
        sts.meta.events,
    )
    url = signer.generate_presigned_url(
        {
            "method": "GET",
            "url": f"{stack.aws_endpoint}/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {"x-k8s-aws-id": cluster},
            "context": {},
        },
        region_name=stack.region,
        expires_in=60,
        operation_name="",
    )
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def role(stack: Stack, name: str, service: str) -> str:
    """Make a role that everybody of the account and `service` may assume; returns its ARN."""
    principal = {"AWS": f"arn:aws:iam::{stack.account}:root", "Service": service}
    trust = {"Effect": "Allow", "Principal": principal, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    answer = client(stack, "iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)
    return str(answer["Role"]["Arn"])


def test_a_role_logs_in_by_its_access_entry(stack: Stack, tmp_path: Path) -> None:
    """With the groups of the entry, for this cluster only."""
    arn = role(stack, "reader", "lambda.amazonaws.com")
    client(stack, "eks").create_access_entry(
        clusterName=stack.cluster, principalArn=arn, kubernetesGroups=["spotwright:read"]
    )
    found = client(stack, "sts").assume_role(RoleArn=arn, RoleSessionName="me")["Credentials"]
    credentials = {
        "aws_access_key_id": found["AccessKeyId"],
        "aws_secret_access_key": found["SecretAccessKey"],
        "aws_session_token": found["SessionToken"],
    }

    def whoami(cluster: str) -> subprocess.CompletedProcess[str]:
        config = yaml.safe_load(stack.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": eks_token(stack, credentials, cluster)}
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return stack.kubectl("--kubeconfig", str(path), "auth", "whoami", "-o", "json", check=False)

    until(lambda: whoami(stack.cluster).returncode == 0)
    user = json.loads(whoami(stack.cluster).stdout)["status"]["userInfo"]
    assert "spotwright:read" in user["groups"]
    assert "assumed-role/reader/" in user["username"]
    assert whoami("other-cluster").returncode != 0


def test_a_pod_gets_the_role_of_its_service_account(stack: Stack, profile: str) -> None:
    """By EKS Pod Identity, in a real process, and the process ends with the pod."""
    arn = role(stack, "forwarder", "pods.eks.amazonaws.com")
    client(stack, "eks").create_pod_identity_association(
        clusterName=stack.cluster, namespace="default", serviceAccount="whoami", roleArn=arn
    )
    account = {"cluster": stack.cluster, "namespace": "default", "serviceAccount": "whoami"}
    until(lambda: stack.control("POST", "/_local/podidentity/associated", account)["associated"])
    stack.kubectl("create", "serviceaccount", "whoami")
    container = {"name": "main", "image": "registry.local/whoami:1"}
    spec = {"serviceAccountName": "whoami", "containers": [container], "terminationGracePeriodSeconds": 1}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whoami"}, "spec": spec}
    stack.kubectl("create", "-f", "-", input=json.dumps(pod))
    folder = stack.directory / "pods" / "default_whoami"
    with launched(stack, profile, user_data(stack)):
        until((folder / "found.txt").exists)
        assert "assumed-role/forwarder/" in (folder / "found.txt").read_text()
        until((folder / "main.json").exists)
        pid = json.loads((folder / "main.json").read_text())["pid"]
        assert is_alive(pid)
        stack.kubectl("delete", "pod", "whoami", "--wait=false")
        until(lambda: not is_alive(pid))


def test_stacks_run_side_by_side_but_one_to_a_directory(stack: Stack, tmp_path: Path) -> None:
    with Stack.start(tmp_path / "other", cluster="other") as other_stack:
        assert other_stack.aws_endpoint != stack.aws_endpoint
        assert client(other_stack, "eks").list_clusters()["clusters"] == ["other"]
        assert client(stack, "eks").list_clusters()["clusters"] == [stack.cluster]
        with pytest.raises(StackInUse):
            Stack.start(tmp_path / "other")
        pids = list(other_stack.pids().values())
        assert all(map(is_alive, pids))
    until(lambda: not any(map(is_alive, pids)))
    assert stack.exit_codes() == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_stack_whose_owner_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """Also where it is the background job of a script, which has its jobs ignore SIGINT."""
    command = [sys.executable, "-m", "local", "up", "--directory", str(tmp_path)]
    in_background = ["bash", "-c", 'trap "" INT; exec "$@"', "job", *command]
    owner = subprocess.Popen(in_background, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    until((tmp_path / "stack.json").exists)
    group = children(owner.pid)
    assert len(group) >= 9
    owner.send_signal(number)
    owner.wait(300)
    until(lambda: not any(map(is_alive, group)))


def test_up_and_down_from_the_command_line(tmp_path: Path) -> None:
    """`--detach` returns when the stack is up; stack.json says how to reach it."""

    def local(*arguments: str) -> int:
        command = [sys.executable, "-m", "local", *arguments, "--directory", str(tmp_path)]
        return subprocess.run(command, cwd=Path(__file__).parents[2], timeout=900, check=False).returncode

    assert local("up", "--detach") == 0
    facts = json.loads((tmp_path / "stack.json").read_text())
    assert local("up", "--detach") == 1
    listed = subprocess.run(
        ["kubectl", "get", "namespaces"],
        env={**os.environ, **facts["environment"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "kube-system" in listed.stdout
    parts = children(facts["pid"])
    assert local("down") == 0
    # The owner has let go of everything; it may still be on its way out itself.
    until(lambda: not is_alive(facts["pid"]))
    until(lambda: not any(map(is_alive, parts)))
    assert local("down") == 0


def children(pid: int) -> list[int]:
    """Processes that `pid` started and that still run."""
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
