"""Stacks: create, update, delete, describe."""

from functools import partial
from typing import Any

from local.aws.cloudformation.changes import changes, is_unchanged
from local.aws.cloudformation.operations import (
    body_of,
    invalid,
    pause,
    request_of,
    scope_of,
    start_create,
    start_delete,
    start_update,
)
from local.aws.cloudformation.stacks import Resource, Stack, Stacks
from local.aws.cloudformation.template import Invalid, parse
from local.aws.request import AwsError, AwsRequest, AwsResponse

EVENTS_PER_PAGE = 100


def add(stacks: Stacks) -> None:
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
        stacks.world.front("cloudformation", action, partial(answer, stacks))


def create_stack(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    with stacks.lock:
        if stacks.find(params["StackName"]) is not None:
            raise AwsError("AlreadyExistsException", f"Stack [{params['StackName']}] already exists")
        wanted = request_of(stacks.world, params, None)
        stack = stacks.begin(params["StackName"], "CREATE_IN_PROGRESS")
        stack.protected = bool(params.get("EnableTerminationProtection"))
        try:
            start_create(stacks, stack, wanted)
        except BaseException:
            stacks.stacks.remove(stack)
            raise
    pause(stack)
    return request.reply({"StackId": stack.id})


def update_stack(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    with stacks.lock:
        stack = found(stacks, request.params["StackName"])
        wanted = request_of(stacks.world, request.params, stack)
        scope = scope_of(stacks, stack, wanted)
        try:
            if is_unchanged(stack, wanted, scope, changes(stack, wanted, scope, stacks.world.region)):
                raise invalid("No updates are to be performed.")
        except Invalid as error:
            raise invalid(error) from None
        start_update(stacks, stack, wanted)
    pause(stack)
    return request.reply({"StackId": stack.id})


def delete_stack(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    with stacks.lock:
        stack = stacks.find(params["StackName"])
        if stack is None or stack.status == "DELETE_COMPLETE":
            return request.reply({})
        if stack.protected:
            raise invalid(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
        if stack.in_progress:
            raise invalid(f"Stack [{stack.id}] is in {stack.status} state and can not be deleted")
        retain = frozenset(params.get("RetainResources", ()))
        start_delete(stacks, stack, params.get("RoleARN") or "", retain)
    pause(stack)
    return request.reply({})


def found(stacks: Stacks, name: str) -> Stack:
    stack = stacks.find(name)
    if stack is None:
        raise invalid(f"Stack with id {name} does not exist")
    return stack


def describe_stacks(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    name = request.params.get("StackName")
    chosen = [found(stacks, name)] if name else [s for s in stacks.stacks if s.status != "DELETE_COMPLETE"]
    return request.reply({"Stacks": [_described(stack) for stack in chosen]})


def _described(stack: Stack) -> dict[str, Any]:
    request = stack.request
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
        "RoleARN": request.role if request else "",
        "Tags": [{"Key": k, "Value": v} for k, v in request.tags.items()] if request else [],
        "EnableTerminationProtection": stack.protected,
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
            "Timestamp": event.at,
            "ResourceStatus": event.status,
        }
        | ({"ResourceStatusReason": event.reason} if event.reason else {})
        | ({"ClientRequestToken": event.token} if event.token else {})
        for event in reversed(stack.events[begin:end])
    ]
    return request.reply({"StackEvents": page} | ({"NextToken": str(begin)} if begin else {}))


def _resource(stack: Stack, resource: Resource, time_field: str) -> dict[str, Any]:
    entry = {
        "StackName": stack.name,
        "StackId": stack.id,
        "LogicalResourceId": resource.name,
        "PhysicalResourceId": resource.made.physical_id,
        "ResourceType": resource.type,
        time_field: resource.at,
        "ResourceStatus": resource.status,
        "DriftInformation": {"StackResourceDriftStatus": "NOT_CHECKED"},
    }
    return entry | ({"ResourceStatusReason": resource.reason} if resource.reason else {})


def describe_stack_resource(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    stack, name = found(stacks, request.params["StackName"]), request.params["LogicalResourceId"]
    if name not in stack.resources:
        raise invalid(f"Resource {name} does not exist for stack {stack.name}")
    detail = _resource(stack, stack.resources[name], "LastUpdatedTimestamp")
    return request.reply({"StackResourceDetail": detail})


def describe_stack_resources(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    if "PhysicalResourceId" in params:
        owned = [
            s
            for s in stacks.stacks
            if any(r.made.physical_id == params["PhysicalResourceId"] for r in s.resources.values())
        ]
        if not owned:
            raise invalid(f"Stack for {params['PhysicalResourceId']} does not exist")
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
    summaries = [_described(stack) for stack in stacks.stacks if not wanted or stack.status in wanted]
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
        body = change_set.request.body if change_set else ""
    else:
        stack = found(stacks, params["StackName"])
        body = stack.request.body if stack.request else "{}"
    return request.reply({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})


def get_template_summary(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    stack = found(stacks, params["StackName"]) if params.get("StackName") else None
    try:
        template = parse(body_of(stacks.world, params | {"UsePreviousTemplate": True}, stack))
    except Invalid as error:
        raise invalid(error) from None
    iam = any(resource["Type"].startswith("AWS::IAM::") for resource in template["Resources"].values())
    summary = {
        "Parameters": [
            {
                "ParameterKey": name,
                "ParameterType": str(one.get("Type", "String")),
                "NoEcho": bool(one.get("NoEcho")),
                "Description": str(one.get("Description", "")),
            }
            | ({"DefaultValue": str(one["Default"])} if "Default" in one else {})
            for name, one in template.get("Parameters", {}).items()
        ],
        "Description": str(template.get("Description", "")),
        "Capabilities": ["CAPABILITY_NAMED_IAM"] if iam else [],
        "ResourceTypes": [resource["Type"] for resource in template["Resources"].values()],
    }
    return request.reply(summary)


def update_termination_protection(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    stack = found(stacks, request.params["StackName"])
    stack.protected = bool(request.params["EnableTerminationProtection"])
    return request.reply({"StackId": stack.id})
