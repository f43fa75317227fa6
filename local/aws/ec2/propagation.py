"""What EC2 does not know or show at first: instance profiles, launch templates, instances.

Source: https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
"""

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.instances import Instances
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

_PROFILE_CHANGES = frozenset(("CreateInstanceProfile", "AddRoleToInstanceProfile"))


def add(emulator: Emulator) -> None:
    emulator.check_before(lambda request: _check_tagged(emulator, request))
    emulator.react_after(lambda request, response: _note(emulator, request, response))


def _note(emulator: Emulator, request: AwsRequest, response: AwsResponse) -> None:
    if response.status >= 400:
        return
    if request.service == "iam" and request.action in _PROFILE_CHANGES:
        emulator.strictness.note(Rule.INSTANCE_PROFILE_PROPAGATION, str(request.params["InstanceProfileName"]))
    elif (request.service, request.action) == ("ec2", "CreateLaunchTemplate"):
        emulator.strictness.note(Rule.LAUNCH_TEMPLATE_PROPAGATION, str(request.params["LaunchTemplateName"]))


def _check_tagged(emulator: Emulator, request: AwsRequest) -> None:
    """Nobody can tag an instance that is not shown yet."""
    if (request.service, request.action) != ("ec2", "CreateTags"):
        return
    for resource in request.params.get("Resources") or ():
        known = emulator.component(Instances).find(resource) is not None
        if known and not emulator.strictness.is_seen(Rule.INSTANCE_PROPAGATION, resource):
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{resource}' does not exist")
