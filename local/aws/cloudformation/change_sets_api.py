"""Change sets: how the CDK deploys and diffs."""

import uuid
from dataclasses import replace
from functools import partial
from typing import Any

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.cloudformation.change_sets import is_unchanged, resource_changes
from local.aws.cloudformation.operations import (
    read_stack_input,
    start_create,
    start_update,
    template_scope,
    validation_error,
    wait_briefly,
)
from local.aws.cloudformation.stacks import ChangeSet, Stack, StackInput, Stacks
from local.aws.cloudformation.template import InvalidTemplate
from local.aws.emulator import Emulator

NO_CHANGES = "The submitted information didn't contain changes. Submit different information to create a change set."


def add(emulator: Emulator) -> None:
    stacks = emulator.component(Stacks)
    for action, answer in {
        "CreateChangeSet": create_change_set,
        "DescribeChangeSet": describe_change_set,
        "ExecuteChangeSet": execute_change_set,
        "DeleteChangeSet": delete_change_set,
        "ListChangeSets": list_change_sets,
    }.items():
        emulator.handle("cloudformation", action, partial(answer, stacks))


def create_change_set(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    name, kind = params["StackName"], params.get("ChangeSetType", "UPDATE")
    if params.get("ResourcesToImport"):
        raise validation_error("the local CloudFormation cannot import resources")
    with stacks.lock:
        existing = _stack_for(stacks, name, kind)
        wanted = read_stack_input(stacks.emulator, params, existing)
        stack = existing or stacks.create_stack(name, "REVIEW_IN_PROGRESS")
        try:
            change_set = _made(stacks, stack, wanted, params)
        except BaseException:
            if existing is None:
                stacks.all.remove(stack)
            raise
        if existing is None:
            stack.set_status("REVIEW_IN_PROGRESS", "User Initiated")
        stacks.change_sets[change_set.id] = change_set
    return request.reply({"Id": change_set.id, "StackId": stack.id})


def _made(stacks: Stacks, stack: Stack, wanted: StackInput, params: dict[str, Any]) -> ChangeSet:
    scope = template_scope(stacks, stack, wanted)
    try:
        found = resource_changes(stack, wanted, scope, stacks.emulator.region)
    except InvalidTemplate as error:
        raise validation_error(error) from None
    name, kind = params["ChangeSetName"], params.get("ChangeSetType", "UPDATE")
    identity = f"{stack.id.split(':stack/')[0]}:changeSet/{name}/{uuid.uuid4()}"
    description = params.get("Description", "")
    change_set = ChangeSet(name, identity, stack, kind, wanted, found, description=description)
    if kind == "UPDATE" and is_unchanged(stack, wanted, scope, found):
        change_set.status, change_set.execution_status, change_set.reason = "FAILED", "UNAVAILABLE", NO_CHANGES
    return change_set


def _stack_for(stacks: Stacks, name: str, kind: str) -> Stack | None:
    """The stack an update is for, or the reviewed one of a creation; None to begin one."""
    stack = stacks.find(name)
    if kind == "CREATE":
        if stack is not None and stack.status != "REVIEW_IN_PROGRESS":
            raise validation_error(f"Stack [{name}] already exists and cannot be created again with the changeSet.")
        return stack
    if stack is None or stack.status == "DELETE_COMPLETE":
        raise validation_error(f"Stack [{name}] does not exist")
    if stack.in_progress:
        raise validation_error(f"Stack:{stack.id} is in {stack.status} state and can not be updated.")
    return stack


def _found(stacks: Stacks, params: dict[str, Any]) -> ChangeSet:
    change_set = stacks.change_set(params["ChangeSetName"], params.get("StackName"))
    if change_set is None:
        raise AwsError("ChangeSetNotFound", f"ChangeSet [{params['ChangeSetName']}] does not exist", 404)
    return change_set


def describe_change_set(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    change_set = _found(stacks, request.params)
    return request.reply(
        summary(change_set)
        | {
            "Changes": change_set.changes,
            "Parameters": [
                {"ParameterKey": name, "ParameterValue": value} for name, value in change_set.input.parameters.items()
            ],
            "Tags": [{"Key": name, "Value": value} for name, value in change_set.input.tags.items()],
            "Capabilities": list(change_set.input.capabilities),
            "RollbackConfiguration": {},
            "NotificationARNs": [],
        }
    )


def summary(change_set: ChangeSet) -> dict[str, Any]:
    fields = {
        "ChangeSetName": change_set.name,
        "ChangeSetId": change_set.id,
        "StackId": change_set.stack.id,
        "StackName": change_set.stack.name,
        "Description": change_set.description,
        "CreationTime": change_set.created,
        "ExecutionStatus": change_set.execution_status,
        "Status": change_set.status,
        "StatusReason": change_set.reason,
    }
    return {name: value for name, value in fields.items() if value != ""}


def execute_change_set(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    params = request.params
    with stacks.lock:
        change_set = _found(stacks, params)
        if change_set.execution_status != "AVAILABLE":
            raise AwsError(
                "InvalidChangeSetStatus", f"ChangeSet [{change_set.id}] cannot be executed in its current status"
            )
        change_set.execution_status = "EXECUTE_COMPLETE"
        change_set.stack.change_set_id = change_set.id
        _expire_others(stacks, change_set)
        start = start_create if change_set.kind == "CREATE" else start_update
        start(stacks, change_set.stack, _executed(change_set, params))
    wait_briefly(change_set.stack)
    return request.reply({})


def _executed(change_set: ChangeSet, params: dict[str, Any]) -> StackInput:
    return replace(
        change_set.input,
        token=params.get("ClientRequestToken") or change_set.input.token,
        disable_rollback=bool(params.get("DisableRollback")) or change_set.input.disable_rollback,
    )


def _expire_others(stacks: Stacks, executed: ChangeSet) -> None:
    """A stack's other change sets were made against what is about to change."""
    for change_set in list(stacks.change_sets.values()):
        if change_set.stack is executed.stack and change_set is not executed:
            del stacks.change_sets[change_set.id]


def delete_change_set(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    """Deleting what is not there succeeds, as on AWS, if at least the stack is."""
    params = request.params
    with stacks.lock:
        change_set = stacks.change_set(params["ChangeSetName"], params.get("StackName"))
        if change_set is not None:
            del stacks.change_sets[change_set.id]
        elif not params["ChangeSetName"].startswith("arn:") and stacks.find(params.get("StackName", "")) is None:
            raise validation_error(f"Stack [{params.get('StackName')}] does not exist")
    return request.reply({})


def list_change_sets(stacks: Stacks, request: AwsRequest) -> AwsResponse:
    stack = stacks.find(request.params["StackName"])
    change_sets = [change_set for change_set in stacks.change_sets.values() if change_set.stack is stack]
    return request.reply({"Summaries": [summary(change_set) for change_set in change_sets]})
