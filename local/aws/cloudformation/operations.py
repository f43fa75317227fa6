"""From an API request to a running operation: what is asked for, whether it may start, and its thread."""

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from moto.core.exceptions import ServiceException
from moto.s3.models import s3_backends
from moto.ssm.models import ssm_backends

from local.aws.calls.request import AwsError
from local.aws.cloudformation.deployment import Deployment, is_custom_resource
from local.aws.cloudformation.intrinsics import Scope, check_rules, resolve_parameters
from local.aws.cloudformation.operation_context import OperationContext
from local.aws.cloudformation.resource_handlers import ResourceType, Session
from local.aws.cloudformation.resource_types.custom_resources import CustomResource
from local.aws.cloudformation.resource_types.registry import RESOURCE_TYPES
from local.aws.cloudformation.stacks import Stack, StackInput, Stacks
from local.aws.cloudformation.template import InvalidTemplate, Template, check_template, parse_template
from local.aws.emulator import Emulator

# An operation that ends within this time has ended when its starter is answered: deploys are not
# slowed down by pollers that sleep for seconds.
SHORT_OPERATION_SECONDS = 3.0
UPDATABLE = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_FAILED", "CREATE_FAILED")
_IAM_NAMES = ("RoleName", "ManagedPolicyName", "InstanceProfileName", "UserName", "GroupName")


def validation_error(error: InvalidTemplate | str) -> AwsError:
    return AwsError("ValidationError", str(error))


def template_body(emulator: Emulator, params: Mapping[str, Any], stack: Stack | None) -> str:
    """The template's text: given, from S3, or the stack's own."""
    if params.get("TemplateBody"):
        return str(params["TemplateBody"])
    if params.get("TemplateURL"):
        return _from_s3(emulator, params["TemplateURL"])
    if params.get("UsePreviousTemplate") and stack is not None and stack.input is not None:
        return stack.input.template_body
    raise validation_error("Either Template URL or Template Body must be specified.")


def _from_s3(emulator: Emulator, url: str) -> str:
    place = urlparse(url)
    path = unquote(place.path).lstrip("/")
    host = place.hostname or ""
    if host.startswith("s3") or host == "127.0.0.1":
        bucket, _, key = path.partition("/")
    else:
        bucket, key = host.split(".s3", 1)[0], path
    try:
        fake_key = s3_backends[emulator.account]["aws"].get_object(bucket, key)
    except ServiceException as error:
        raise validation_error(f"S3 error: {error}") from None
    except Exception as error:  # noqa: BLE001 - moto's S3 raises errors of several families
        raise validation_error(f"S3 error: {error}") from None
    if fake_key is None:
        raise validation_error(f"S3 error: The specified key does not exist: {url}")
    return bytes(fake_key.value).decode()


def read_stack_input(emulator: Emulator, params: Mapping[str, Any], stack: Stack | None) -> StackInput:
    """A checked request; raises AwsError."""
    body = template_body(emulator, params, stack)
    previous = stack.input.parameters if stack is not None and stack.input is not None else {}
    given = {}
    for parameter in params.get("Parameters", ()):
        name = parameter["ParameterKey"]
        if not parameter.get("UsePreviousValue"):
            given[name] = str(parameter.get("ParameterValue", ""))
        elif name in previous:
            given[name] = previous[name]
    try:
        template = parse_template(body)
        check_template(template, RESOURCE_TYPES | {"AWS::CloudFormation::CustomResource": None})
    except InvalidTemplate as error:
        raise validation_error(error) from None
    capabilities = tuple(params.get("Capabilities", ()))
    _check_capabilities(template, capabilities)
    return StackInput(
        body,
        template,
        given,
        {tag["Key"]: tag["Value"] for tag in params.get("Tags", ())},
        role_arn=params.get("RoleARN") or (stack.input.role_arn if stack is not None and stack.input else ""),
        token=params.get("ClientRequestToken") or "",
        disable_rollback=bool(params.get("DisableRollback")) or params.get("OnFailure") == "DO_NOTHING",
        capabilities=capabilities,
    )


def _check_capabilities(template: Template, given: tuple[str, ...]) -> None:
    iam = [r for r in template["Resources"].values() if r["Type"].startswith("AWS::IAM::")]
    named = any(name in r.get("Properties", {}) for r in iam for name in _IAM_NAMES)
    if "CAPABILITY_NAMED_IAM" in given or not iam or (not named and "CAPABILITY_IAM" in given):
        return
    needed = "CAPABILITY_NAMED_IAM" if named else "CAPABILITY_IAM"
    raise AwsError("InsufficientCapabilitiesException", f"Requires capabilities : [{needed}]")


def template_scope(stacks: Stacks, stack: Stack, request: StackInput) -> Scope:
    """What the template may refer to, before any resource; raises AwsError for wrong parameters."""
    emulator = stacks.emulator
    pseudo = {
        "AWS::AccountId": emulator.account,
        "AWS::NotificationARNs": [],
        "AWS::Partition": "aws",
        "AWS::Region": emulator.region,
        "AWS::StackId": stack.id,
        "AWS::StackName": stack.name,
        "AWS::URLSuffix": "amazonaws.com",
    }
    try:
        parameters = resolve_parameters(request.template, request.parameters, {}, lambda name: _stored(emulator, name))
        exports = {name: value for name, (value, _) in stacks.exports().items()}
        zones = tuple(f"{emulator.region}{letter}" for letter in "abc")
        scope = Scope(request.template, parameters, pseudo, exports, zones, lambda name: _stored(emulator, name))
        check_rules(scope)
    except InvalidTemplate as error:
        raise validation_error(error) from None
    return scope


def _stored(emulator: Emulator, name: str) -> str:
    parameter = ssm_backends[emulator.account][emulator.region].get_parameter(name)
    if parameter is None:
        raise InvalidTemplate(f"Unable to fetch parameters [{name}] from parameter store for this account.")
    return str(parameter.value)


def operation_context(stacks: Stacks, stack: Stack, role: str, tags: Mapping[str, str]) -> OperationContext:
    custom = CustomResource(stacks.emulator)

    def handler(kind: str) -> ResourceType:
        return custom if is_custom_resource(kind) else RESOURCE_TYPES[kind]

    return OperationContext(stack, handler, Session(stacks.emulator, role), tags)


def start_create(stacks: Stacks, stack: Stack, request: StackInput) -> None:
    scope = template_scope(stacks, stack, request)
    bench = operation_context(stacks, stack, request.role_arn, request.tags)
    stack.input = request
    _start(stack, "CREATE_IN_PROGRESS", Deployment(bench, request, scope).create)


def start_update(stacks: Stacks, stack: Stack, request: StackInput) -> None:
    if stack.status not in UPDATABLE or stack.input is None:
        raise validation_error(f"Stack:{stack.id} is in {stack.status} state and can not be updated.")
    before = stack.input
    scope = template_scope(stacks, stack, request)
    bench = operation_context(stacks, stack, request.role_arn, request.tags)
    deployment = Deployment(bench, request, scope)
    _start(stack, "UPDATE_IN_PROGRESS", lambda: deployment.update(before))


def start_delete(stacks: Stacks, stack: Stack, role: str, retain: frozenset[str]) -> None:
    request = stack.input
    bench = operation_context(
        stacks, stack, role or (request.role_arn if request else ""), request.tags if request else {}
    )
    _start(stack, "DELETE_IN_PROGRESS", lambda: bench.delete_stack(retain))


def _start(stack: Stack, status: str, work: Callable[[], None]) -> None:
    """Run in a thread; the stack counts as in progress from here on."""
    stack.status = status
    stack.idle.clear()

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever happens, the stack must not stay in progress
            traceback.print_exc(file=sys.stderr)
            stack.set_status(f"{status.removesuffix('_IN_PROGRESS')}_FAILED", f"internal failure: {error}")
        finally:
            stack.idle.set()

    threading.Thread(target=run, name=f"stack-{stack.name}", daemon=True).start()


def wait_briefly(stack: Stack) -> None:
    """Give a short operation the time to end before its starter is answered."""
    stack.idle.wait(SHORT_OPERATION_SECONDS)
