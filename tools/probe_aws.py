"""`make probe-aws`: asks a real account whether what docs/aws-facts.md says of AWS is so.

Dry unless confirmed: it lists what it would do, what that costs at most, and calls nothing. Everything it makes is
tagged and taken down again, also after a failure; a second run takes down what an interrupted one left.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

TAG: Final = "spotwright.dev/probe"
BUDGET: Final = Decimal("1.00")
# A burstable type of each architecture that every region has; a minute is the least that is billed.
INSTANCE_TYPE: Final = "t3.nano"
MINUTE_OF_IT: Final = Decimal("0.0003")
IMAGE: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
NOBODY: Final = "i-0123456789abcdef0"
SETTLE_SECONDS: Final = 60


@dataclass
class Probe:
    """One run in one account. ``subnet``: where an instance may start."""

    session: Any
    subnet: str
    image: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def client(self, service: str) -> Any:
        return self.session.client(service, config=Config(retries={"total_max_attempts": 2}, read_timeout=30))

    def tags(self, *kinds: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": [{"Key": TAG, "Value": self.run}]} for kind in kinds]


class Wrong(Exception):
    """AWS does not do what we believe."""


@dataclass(frozen=True)
class Check:
    """``fact``: its number in docs/aws-facts.md; ``cost``: dollars at most."""

    fact: str
    what: str
    ask: Callable[[Probe], None]
    cost: Decimal = Decimal(0)


def expect(holds: object, why: str) -> None:
    if not holds:
        raise Wrong(why)


@contextmanager
def refused(*codes: str) -> Iterator[None]:
    """The block must be refused with one of these codes."""
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        expect(code in codes, f"refused with {code}, not {' or '.join(codes)}")
        return
    raise Wrong(f"was not refused; expected {' or '.join(codes)}")


# EC2, without starting anything


def absence(probe: Probe) -> None:
    ec2 = probe.client("ec2")
    with refused("InvalidInstanceID.NotFound"):
        ec2.describe_instances(InstanceIds=[NOBODY])
    listed = ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [NOBODY]}])
    expect(not listed["Reservations"], "a list by filter shows an instance that does not exist")
    with refused("InvalidInstanceID.NotFound"):
        ec2.terminate_instances(InstanceIds=[NOBODY])


def pages(probe: Probe) -> None:
    ec2 = probe.client("ec2")
    first = ec2.describe_instance_types(MaxResults=100)
    expect(len(first["InstanceTypes"]) <= 100 and first.get("NextToken"), "instance types are not paged by 100")
    offered = ec2.describe_instance_type_offerings(LocationType="availability-zone", MaxResults=1000)
    expect(len(offered["InstanceTypeOfferings"]) <= 1000, "offerings are not paged by 1000")


def template_versions(probe: Probe) -> None:
    ec2, name = probe.client("ec2"), f"spotwright/probe/{probe.run}"
    made = _template(probe, name)
    with refused("InvalidLaunchTemplateName.AlreadyExistsException"):
        _template(probe, name)
    second = ec2.create_launch_template_version(
        LaunchTemplateName=name, VersionDescription="two", LaunchTemplateData={"InstanceType": INSTANCE_TYPE}
    )["LaunchTemplateVersion"]
    expect((made["LatestVersionNumber"], second["VersionNumber"]) == (1, 2), "versions do not count 1, 2")
    ec2.delete_launch_template(LaunchTemplateName=name)
    with refused("InvalidLaunchTemplateName.NotFoundException"):
        ec2.describe_launch_template_versions(LaunchTemplateName=name)


def fleet_refusals(probe: Probe) -> None:
    ec2 = probe.client("ec2")
    made = _template(probe, f"spotwright/probe/{probe.run}-refusals")
    with refused("DryRunOperation"):
        ec2.create_fleet(**_fleet(probe, made, token=f"{probe.run}-dry"), DryRun=True)
    with refused("InvalidFleetConfig", "InvalidParameterValue"):
        ec2.create_fleet(**_fleet(probe, made, token=f"{probe.run}-same", overrides=2))
    ec2.delete_launch_template(LaunchTemplateId=made["LaunchTemplateId"])


def interface_subnet(probe: Probe) -> None:
    """A template that states interfaces: the subnet stands in the request's interface, and nowhere else."""
    ec2 = probe.client("ec2")
    interface = {"DeviceIndex": 0, "DeleteOnTermination": True}
    made = _template(probe, f"spotwright/probe/{probe.run}-interfaces", NetworkInterfaces=[interface])
    request = {
        "LaunchTemplate": {"LaunchTemplateId": made["LaunchTemplateId"], "Version": "1"},
        "MinCount": 1,
        "MaxCount": 1,
        "DryRun": True,
    }
    with refused("DryRunOperation"):
        ec2.run_instances(**request, NetworkInterfaces=[interface | {"SubnetId": probe.subnet}])
    with refused("InvalidParameterCombination"):
        ec2.run_instances(**request, SubnetId=probe.subnet)
    ec2.delete_launch_template(LaunchTemplateId=made["LaunchTemplateId"])


# EC2, with one instance


def fleet_tokens(probe: Probe) -> None:
    """One token, one fleet; instances carry the tags at once; what is terminated stays readable by its id."""
    ec2 = probe.client("ec2")
    made = _template(probe, f"spotwright/probe/{probe.run}-fleet")
    request = _fleet(probe, made, token=probe.run)
    first = ec2.create_fleet(**request)
    ids = _ids(first)
    expect(len(ids) == 1, f"no instance: {first.get('Errors')}")
    expect(_ids(ec2.create_fleet(**request)) == ids, "the same token and request made another instance")
    with refused("IdempotentParameterMismatch"):
        ec2.create_fleet(**_fleet(probe, made, token=probe.run, count=2))
    found = _patiently(lambda: _described(ec2, ids[0]))
    expect({"Key": TAG, "Value": probe.run} in found.get("Tags", ()), "the instance does not carry the fleet's tags")
    ec2.terminate_instances(InstanceIds=ids)
    ec2.terminate_instances(InstanceIds=ids)
    expect(_described(ec2, ids[0]) is not None, "an instance that was terminated is not found by its id")
    with refused("InvalidInstanceID.NotFound"):
        ec2.terminate_instances(InstanceIds=[*ids, NOBODY])


# SQS


def queue_mechanics(probe: Probe) -> None:
    sqs = probe.client("sqs")
    url = sqs.create_queue(QueueName=f"spotwright-probe-{probe.run}", tags={TAG: probe.run})["QueueUrl"]
    try:
        with refused("InvalidParameterValue"):
            sqs.send_message(QueueUrl=url, MessageBody="late", DelaySeconds=901)
        sqs.send_message(QueueUrl=url, MessageBody="one", DelaySeconds=1)
        got = _patiently(
            lambda: sqs.receive_message(QueueUrl=url, VisibilityTimeout=1, WaitTimeSeconds=3).get("Messages")
        )
        expect(len(got) == 1, "one message came as several")
        again = _patiently(lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=3).get("Messages"))
        expect(again[0]["MessageId"] == got[0]["MessageId"], "a message that was not deleted did not come back")
        entries = [{"Id": str(number), "MessageBody": "x"} for number in range(11)]
        with refused("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "TooManyEntriesInBatchRequest"):
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
    finally:
        sqs.delete_queue(QueueUrl=url)


CHECKS: Final[Sequence[Check]] = (
    Check("absence", "an id that does not exist is NotFound when read or terminated, and absent from lists", absence),
    Check("pages", "instance types come in pages of 100, offerings of 1000", pages),
    Check(
        "template-versions", "a name is taken once, versions count up, what is deleted is NotFound", template_versions
    ),
    Check("fleet-refusals", "a dry run answers DryRunOperation; one pool twice is refused", fleet_refusals),
    Check("interface-subnet", "a dry run takes a subnet beside stated interfaces inside them only", interface_subnet),
    Check(
        "fleet-token",
        f"one token buys once ({INSTANCE_TYPE}, terminated at once); tags; reads after the end",
        fleet_tokens,
        MINUTE_OF_IT,
    ),
    Check(
        "queue",
        "delays up to 900 s, messages come back until deleted, batches of 10",
        queue_mechanics,
        Decimal("0.0001"),
    ),
)


def _template(probe: Probe, name: str, **data: Any) -> Mapping[str, Any]:
    made: Mapping[str, Any] = probe.client("ec2").create_launch_template(
        LaunchTemplateName=name,
        VersionDescription="one",
        LaunchTemplateData={"InstanceType": INSTANCE_TYPE, "ImageId": probe.image} | data,
        TagSpecifications=probe.tags("launch-template"),
    )["LaunchTemplate"]
    return made


def _fleet(probe: Probe, made: Mapping[str, Any], *, token: str, count: int = 1, overrides: int = 1) -> dict[str, Any]:
    pool = {"InstanceType": INSTANCE_TYPE, "SubnetId": probe.subnet}
    specification = {"LaunchTemplateId": made["LaunchTemplateId"], "Version": "1"}
    return {
        "Type": "instant",
        "ClientToken": token,
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": [pool] * overrides}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": "on-demand"},
        "TagSpecifications": probe.tags("fleet", "instance"),
    }


def _ids(answer: Mapping[str, Any]) -> list[str]:
    return [instance for fleet_instance in answer.get("Instances") or () for instance in fleet_instance["InstanceIds"]]


def _described(ec2: Any, instance: str) -> Any:
    """An id that was just made is NotFound for a while."""
    try:
        found = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "InvalidInstanceID.NotFound":
            return None
        raise
    return found[0]["Instances"][0] if found else None


def _patiently[T](look: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(1)
    raise Wrong(f"nothing to be seen within {SETTLE_SECONDS} s")


def tidy(session: Any) -> None:
    """Take down everything that carries our tag, of whatever run."""
    ec2 = session.client("ec2")
    ours = [{"Name": "tag-key", "Values": [TAG]}]
    alive = [*ours, {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    found = [
        member["InstanceId"]
        for group in ec2.describe_instances(Filters=alive)["Reservations"]
        for member in group["Instances"]
    ]
    if found:
        ec2.terminate_instances(InstanceIds=found)
    for template in ec2.describe_launch_templates(Filters=ours)["LaunchTemplates"]:
        ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])


def listing(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        yield f"  {check.fact:<18} ${check.cost:<8} {check.what}"
    yield f"  {'at most':<18} ${sum(check.cost for check in checks)}"


def ask(probe: Probe, checks: Sequence[Check]) -> dict[str, str]:
    """Fact → "" when it holds, else what AWS did instead."""
    answers = {}
    try:
        for check in checks:
            try:
                check.ask(probe)
                answers[check.fact] = ""
            except Wrong as wrong:
                answers[check.fact] = str(wrong)
            except ClientError as error:
                answers[check.fact] = f"could not be asked: {error}"
            print(f"  {check.fact:<18} {answers[check.fact] or 'holds'}", flush=True)
    finally:
        tidy(probe.session)
    return answers


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make probe-aws", description=__doc__)
    parser.add_argument("--confirm", action="store_true", help="do it; without this nothing is called")
    parser.add_argument("--budget", type=Decimal, default=BUDGET, help="dollars that it may cost at most")
    parser.add_argument("--subnet", default="", help="where the one instance starts; default: a default subnet")
    parser.add_argument("--image", default="", help="what it boots; default: Amazon Linux 2023")
    parser.add_argument("--only", nargs="*", default=[], choices=[check.fact for check in CHECKS], help="these facts")
    given = parser.parse_args(arguments)
    checks = [check for check in CHECKS if not given.only or check.fact in given.only]
    print("\n".join(listing(checks)))
    if sum(check.cost for check in checks) > given.budget:
        print(f"this may cost more than ${given.budget}: nothing was done", file=sys.stderr)
        return 2
    if not given.confirm:
        print("nothing was called; with CONFIRM=yes (or --confirm) it is done")
        return 0
    session = boto3.Session()
    probe = Probe(session, given.subnet or _default_subnet(session), given.image or _image(session))
    return 1 if any(ask(probe, checks).values()) else 0


def _default_subnet(session: Any) -> str:
    found = session.client("ec2").describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    if not found:
        raise SystemExit("there is no default subnet: name one with --subnet")
    return str(sorted(subnet["SubnetId"] for subnet in found)[0])


def _image(session: Any) -> str:
    return str(session.client("ssm").get_parameter(Name=IMAGE)["Parameter"]["Value"])


if __name__ == "__main__":
    sys.exit(main())
