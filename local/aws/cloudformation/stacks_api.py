"""Stacks: create, update, delete, describe."""

from functools import partial
from typing import Any

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.cloudformation.change_sets import is_unchanged, resource_changes
from local.aws.cloudformation.operations import (
    read_stack_input,
    start_create,
    start_delete,
    start_update,
    template_body,
    template_scope,
    validation_error,
    wait_briefly,
)
from local.aws.cloudformation.stacks import Stack, StackResource, Stacks
from local.aws.cloudformation.template import InvalidTemplate, parse_template
from local.aws.emulator import Emulator

EVENTS_PER_PAGE = 100


def add(emulator: Emulator) -> None:
    stacks = emulator.component(Stacks)
    for action, answer in {
        "CreateStack": create_stack,
        "UpdateStack": update_stack,
        "DeleteStack": delete_stack,
        "DescribeStacks": describe_stacks,
        "DescribeStackEvents": describe_stack_events,
        "DescribeStackResource": describe_stack_resource,
        "DescribeStackResources": describe_stack_resources,
        "GetTemplate": get_template,
        "GetTemplateSummary": get_template_summary,
        "ListExports": list_exports,
        "ListStackResources": list_stack_resources,
        "ListStacks": list_stacks,
        "UpdateTerminationProtection": update_termination_protection,
        "ValidateTemplate": get_template_summary,
    }.items():
        emulator.handle("cloudformation", action, partial(answer, stacks))
    # The CDK asks CloudTrail why a deployment failed; the call log and the stack's events know better.
    emulator.handle("cloudtrail", "LookupEvents", lambda request: request.reply({"Events": []}))


def create_stack(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    with stacks.lock:
        if stacks.find(params["StackName"]) is not None:
            raise AwsError("AlreadyExistsException", f"Stack [{params['StackName']}] already exists")
        wanted = read_stack_input(stacks.emulator, params, None)
        stack = stacks.create_stack(params["StackName"], "CREATE_IN_PROGRESS")
        stack.termination_protection = bool(params.get("EnableTerminationProtection"))
        try:
            start_create(stacks, stack, wanted)
        except BaseException:
            stacks.all.remove(stack)
            raise
    wait_briefly(stack)
    return request.reply({"StackId": stack.id})


def update_stack(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    with stacks.lock:
        stack = found(stacks, request.params["StackName"])
        wanted = read_stack_input(stacks.emulator, request.params, stack)
        scope = template_scope(stacks, stack, wanted)
        try:
            if is_unchanged(stack, wanted, scope, resource_changes(stack, wanted, scope, stacks.emulator.region)):
                raise validation_error("No updates are to be performed.")
        except InvalidTemplate as error:
            raise validation_error(error) from None
        start_update(stacks, stack, wanted)
    wait_briefly(stack)
    return request.reply({"StackId": stack.id})


def delete_stack(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    with stacks.lock:
        stack = stacks.find(params["StackName"])
        if stack is None or stack.status == "DELETE_COMPLETE":
            return request.reply({})
        if stack.termination_protection:
            raise validation_error(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
        if stack.in_progress:
            raise validation_error(f"Stack [{stack.id}] is in {stack.status} state and can not be deleted")
        retain = frozenset(params.get("RetainResources", ()))
        start_delete(stacks, stack, params.get("RoleARN") or "", retain)
    wait_briefly(stack)
    return request.reply({})


def found(stacks: Stacks, name: str) -> Stack:
    stack = stacks.find(name)
    if stack is None:
        raise validation_error(f"Stack with id {name} does not exist")
    return stack


def describe_stacks(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    name = request.params.get("StackName")
    chosen = [found(stacks, name)] if name else [s for s in stacks.all if s.status != "DELETE_COMPLETE"]
    return request.reply({"Stacks": [_described(stack) for stack in chosen]})


def _described(stack: Stack) -> dict[str, Any]:
    request = stack.input
    fields: dict[str, Any] = {
        "StackId": stack.id,
        "StackName": stack.name,
        "ChangeSetId": stack.change_set_id,
        "Description": request.template.get("Description", "") if request else "",
        "Parameters": [_parameter(name, value) for name, value in stack.parameters.items()],
        "CreationTime": stack.created,
        "LastUpdatedTime": stack.updated,
        "DeletionTime": stack.deleted,
        "RollbackConfiguration": {},
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason,
        "DisableRollback": bool(request and request.disable_rollback),
        "NotificationARNs": [],
        "Capabilities": list(request.capabilities) if request else [],
        "Outputs": stack.outputs,
        "RoleARN": request.role_arn if request else "",
        "Tags": [{"Key": k, "Value": v} for k, v in request.tags.items()] if request else [],
        "EnableTerminationProtection": stack.termination_protection,
        "DriftInformation": {"StackDriftStatus": "NOT_CHECKED"},
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}


def _parameter(name: str, value: Any) -> dict[str, str]:
    return {"ParameterKey": name, "ParameterValue": ",".join(value) if isinstance(value, list) else str(value)}


def describe_stack_events(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    """Latest first, in pages."""
    stack = found(stacks, request.params["StackName"])
    end = int(request.params.get("NextToken") or len(stack.events))
    begin = max(0, end - EVENTS_PER_PAGE)
    page = [
        {
            "StackId": stack.id,
            "EventId": event.id,
            "StackName": stack.name,
            "LogicalResourceId": event.name,
            "PhysicalResourceId": event.physical_id,
            "ResourceType": event.type,
            "Timestamp": event.timestamp,
            "ResourceStatus": event.status,
        }
        | ({"ResourceStatusReason": event.reason} if event.reason else {})
        | ({"ClientRequestToken": event.token} if event.token else {})
        for event in reversed(stack.events[begin:end])
    ]
    return request.reply({"StackEvents": page} | ({"NextToken": str(begin)} if begin else {}))


def _resource(stack: Stack, resource: StackResource, time_field: str) -> dict[str, Any]:
    entry = {
        "StackName": stack.name,
        "StackId": stack.id,
        "LogicalResourceId": resource.name,
        "PhysicalResourceId": resource.physical.physical_id,
        "ResourceType": resource.type,
        time_field: resource.updated_at,
        "ResourceStatus": resource.status,
        "DriftInformation": {"StackResourceDriftStatus": "NOT_CHECKED"},
    }
    return entry | ({"ResourceStatusReason": resource.reason} if resource.reason else {})


def describe_stack_resource(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    stack, name = found(stacks, request.params["StackName"]), request.params["LogicalResourceId"]
    if name not in stack.resources:
        raise validation_error(f"Resource {name} does not exist for stack {stack.name}")
    detail = _resource(stack, stack.resources[name], "LastUpdatedTimestamp")
    return request.reply({"StackResourceDetail": detail})


def describe_stack_resources(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    if "PhysicalResourceId" in params:
        owned = [
            s
            for s in stacks.all
            if any(r.physical.physical_id == params["PhysicalResourceId"] for r in s.resources.values())
        ]
        if not owned:
            raise validation_error(f"Stack for {params['PhysicalResourceId']} does not exist")
        stack = owned[-1]
    else:
        stack = found(stacks, params["StackName"])
    wanted = params.get("LogicalResourceId")
    chosen = [r for name, r in stack.resources.items() if wanted in (None, name)]
    return request.reply({"StackResources": [_resource(stack, r, "Timestamp") for r in chosen]})


def list_stack_resources(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    stack = found(stacks, request.params["StackName"])
    summaries = [_resource(stack, r, "LastUpdatedTimestamp") for r in stack.resources.values()]
    return request.reply({"StackResourceSummaries": summaries})


def list_stacks(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    wanted = request.params.get("StackStatusFilter") or ()
    summaries = [_described(stack) for stack in stacks.all if not wanted or stack.status in wanted]
    return request.reply({"StackSummaries": summaries})


def list_exports(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    exports = [
        {"ExportingStackId": stack, "Name": name, "Value": value} for name, (value, stack) in stacks.exports().items()
    ]
    return request.reply({"Exports": exports})


def get_template(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    if params.get("ChangeSetName"):
        change_set = stacks.change_set(params["ChangeSetName"], params.get("StackName"))
        body = change_set.input.template_body if change_set else ""
    else:
        stack = found(stacks, params["StackName"])
        body = stack.input.template_body if stack.input else "{}"
    return request.reply({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})


def get_template_summary(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    stack = found(stacks, params["StackName"]) if params.get("StackName") else None
    try:
        template = parse_template(template_body(stacks.emulator, params | {"UsePreviousTemplate": True}, stack))
    except InvalidTemplate as error:
        raise validation_error(error) from None
    iam = any(resource["Type"].startswith("AWS::IAM::") for resource in template["Resources"].values())
    summary = {
        "Parameters": [
            {
                "ParameterKey": name,
                "ParameterType": str(parameter.get("Type", "String")),
                "NoEcho": bool(parameter.get("NoEcho")),
                "Description": str(parameter.get("Description", "")),
            }
            | ({"DefaultValue": str(parameter["Default"])} if "Default" in parameter else {})
            for name, parameter in template.get("Parameters", {}).items()
        ],
        "Description": str(template.get("Description", "")),
        "Capabilities": ["CAPABILITY_NAMED_IAM"] if iam else [],
        "ResourceTypes": [resource["Type"] for resource in template["Resources"].values()],
    }
    return request.reply(summary)


def update_termination_protection(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    stack = found(stacks, request.params["StackName"])
    stack.termination_protection = bool(request.params["EnableTerminationProtection"])
    return request.reply({"StackId": stack.id})
