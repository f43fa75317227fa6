"""Carrying out a create or update: resources one after another in dependency order, or everything back.

Source: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-updating-stacks-update-behaviors.html
"""

import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from local.aws.cloudformation import schemas
from local.aws.cloudformation.intrinsics import Scope, as_text
from local.aws.cloudformation.operation_context import RESOURCE_ERRORS, RETAIN_POLICIES, OperationContext
from local.aws.cloudformation.resource_handlers import ResourceFailed, failure_reason
from local.aws.cloudformation.stacks import Stack, StackInput, StackResource
from local.aws.cloudformation.template import InvalidTemplate, dependency_order


@dataclass(frozen=True)
class RollbackStep:
    """One step back, of the resource it concerns; `failed_status` is the status it gets when that fails."""

    resource: StackResource
    undo: Callable[[], None]
    failed_status: str


@dataclass
class Deployment:
    """One create or update under way. `replaced_resources` are deleted once all is well."""

    context: OperationContext
    input: StackInput
    scope: Scope
    rollback_steps: list[RollbackStep] = field(default_factory=list)
    replaced_resources: list[StackResource] = field(default_factory=list)

    @property
    def stack(self) -> Stack:
        return self.context.stack

    def create(self) -> None:
        stack = self.stack
        stack.set_status("CREATE_IN_PROGRESS", "User Initiated")
        if self._attempt():
            self.context.await_consistency()
            stack.set_status("CREATE_COMPLETE")
        elif self.input.disable_rollback:
            stack.set_status("CREATE_FAILED", stack.reason)
        else:
            stack.set_status("ROLLBACK_IN_PROGRESS", f"{stack.reason} Rollback requested by user.")
            stack.set_status("ROLLBACK_COMPLETE" if self._roll_back() else "ROLLBACK_FAILED")

    def update(self, before: StackInput) -> None:
        stack = self.stack
        parameters, outputs = stack.parameters, stack.outputs
        stack.set_status("UPDATE_IN_PROGRESS", "User Initiated")
        if self._attempt():
            self.context.await_consistency()
            stack.updated = datetime.now(UTC)
            stack.set_status("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
            self._clean_up(before)
            stack.set_status("UPDATE_COMPLETE")
        elif self.input.disable_rollback:
            stack.set_status("UPDATE_FAILED", stack.reason)
        else:
            stack.set_status("UPDATE_ROLLBACK_IN_PROGRESS", stack.reason)
            done = self._roll_back()
            stack.input = replace(before, token=self.input.token)
            stack.parameters, stack.outputs = parameters, outputs
            stack.set_status("UPDATE_ROLLBACK_COMPLETE" if done else "UPDATE_ROLLBACK_FAILED")

    def _attempt(self) -> bool:
        """Make every resource as the template says, then the outputs; False with the stack's reason set."""
        self.stack.input = self.input
        self.stack.parameters = dict(self.scope.parameters)
        resources = self.input.template["Resources"]
        for name in dependency_order(resources):
            if self.scope.is_included(resources[name]) and not self._make(name, resources[name]):
                self.stack.reason = f"The following resource(s) failed to create or update: [{name}]."
                return False
        try:
            self.stack.outputs = stack_outputs(self.scope)
        except InvalidTemplate as error:
            self.stack.reason = str(error)
            return False
        return True

    def _make(self, name: str, definition: Mapping[str, Any]) -> bool:
        before = self.stack.resources.get(name)
        try:
            self._bring_about(name, definition, before)
        except RESOURCE_ERRORS as error:
            self._note_failure(name, definition, before, error)
            return False
        except Exception as error:  # noqa: BLE001 - a fault of this code is a failed resource, not a stuck stack
            traceback.print_exc(file=sys.stderr)
            self._note_failure(name, definition, before, error)
            return False
        self.scope.resources[name] = self.stack.resources[name].physical
        return True

    def _bring_about(self, name: str, definition: Mapping[str, Any], before: StackResource | None) -> None:
        properties = self._properties(definition)
        if before is None:
            self._create(name, definition, properties, None)
        elif before.type != definition["Type"] or self._replaces(before, properties):
            reason = "Requested update requires the creation of a new physical resource; hence creating one."
            self.stack.add_event(name, before.type, before.physical.physical_id, "UPDATE_IN_PROGRESS", reason)
            self._create(name, definition, properties, before)
        elif properties != before.properties:
            self._change(before, definition, properties)
        else:
            self.stack.resources[name] = replace(before, definition=definition)

    def _properties(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Resolved and checked against AWS's schema and against what the handler passes on."""
        kind = definition["Type"]
        properties = self.scope.resolve(definition.get("Properties", {}))
        if is_custom_resource(kind):
            return dict(properties)
        fitted = schemas.validate_properties(kind, self.context.session.emulator.region, properties)
        for name in sorted(fitted.keys() - self.context.find_resource_type(kind).supported_properties):
            raise ResourceFailed(f"{kind}: the local CloudFormation does not know what to do with property {name}")
        return fitted

    def _replaces(self, before: StackResource, properties: Mapping[str, Any]) -> bool:
        if is_custom_resource(before.type):
            return bool(before.properties.get("ServiceToken") != properties.get("ServiceToken"))
        return schemas.requires_replacement(
            before.type, self.context.session.emulator.region, before.properties, properties
        )

    def _create(
        self, name: str, definition: Mapping[str, Any], properties: Mapping[str, Any], before: StackResource | None
    ) -> None:
        kind = definition["Type"]
        self.stack.add_event(name, kind, "", "CREATE_IN_PROGRESS")
        physical = self.context.find_resource_type(kind).create(self.context.handler_request(name, kind), properties)
        created = StackResource(name, kind, physical, properties, definition)
        self.stack.set_resource_status(created, "UPDATE_COMPLETE" if before else "CREATE_COMPLETE")
        self._undo_create(created, before)
        if before is not None:
            self.replaced_resources.append(before)

    def _undo_create(self, created: StackResource, before: StackResource | None) -> None:
        def run() -> None:
            if created.definition.get("DeletionPolicy") == "Retain":
                self.context.retain(created)
            else:
                self.context.delete(created)
            if before is not None:
                self.stack.resources[before.name] = before

        self.rollback_steps.append(RollbackStep(created, run, "DELETE_FAILED"))

    def _change(self, before: StackResource, definition: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
        name, kind = before.name, before.type
        self.stack.set_resource_status(before, "UPDATE_IN_PROGRESS")
        self.rollback_steps.append(RollbackStep(before, lambda: self._change_back(before, properties), "UPDATE_FAILED"))
        physical = self.context.find_resource_type(kind).update(
            self.context.handler_request(name, kind), before.physical, properties, before.properties
        )
        if physical.physical_id != before.physical.physical_id:
            self.replaced_resources.append(before)
        changed = replace(before, physical=physical, properties=properties, definition=definition)
        self.stack.set_resource_status(changed, "UPDATE_COMPLETE")

    def _change_back(self, before: StackResource, properties: Mapping[str, Any]) -> None:
        """Update to what was; a physical resource that only the update made is deleted."""
        now, kind = self.stack.resources[before.name], before.type
        physical = self.context.find_resource_type(kind).update(
            self.context.handler_request(before.name, kind), now.physical, before.properties, properties
        )
        self.stack.set_resource_status(replace(before, physical=physical), "UPDATE_COMPLETE")
        if now.physical.physical_id not in (physical.physical_id, before.physical.physical_id):
            self.context.delete(now)

    def _note_failure(
        self, name: str, definition: Mapping[str, Any], before: StackResource | None, error: Exception
    ) -> None:
        """Tell it; what a failed creation left behind is deleted with the roll-back."""
        physical = error.resource if isinstance(error, ResourceFailed) else None
        if before is not None:
            self.stack.set_resource_status(before, "UPDATE_FAILED", failure_reason(error))
        elif physical is not None:
            properties = self.scope.resolve(definition.get("Properties", {}))
            left = StackResource(name, definition["Type"], physical, properties, definition)
            self._undo_create(self.stack.set_resource_status(left, "CREATE_FAILED", failure_reason(error)), None)
        else:
            self.stack.add_event(name, definition["Type"], "", "CREATE_FAILED", failure_reason(error))

    def _roll_back(self) -> bool:
        """Undo every step, latest first; False if one could not be undone."""
        done = True
        for step in reversed(self.rollback_steps):
            try:
                step.undo()
            except RESOURCE_ERRORS as error:
                done = False
                self.stack.set_resource_status(step.resource, step.failed_status, failure_reason(error))
        self.rollback_steps.clear()
        return done

    def _clean_up(self, before: StackInput) -> None:
        """Delete what was replaced and what the template no longer has; failures here are only told."""
        resources = self.input.template["Resources"]
        wanted = {name for name, resource in resources.items() if self.scope.is_included(resource)}
        removed = [self.stack.resources[name] for name in self.stack.resources.keys() - wanted]
        order = dependency_order(before.template["Resources"])
        policies = [(stack_resource, "UpdateReplacePolicy") for stack_resource in self.replaced_resources] + [
            (r, "DeletionPolicy") for r in removed
        ]
        for resource, policy in sorted(policies, key=lambda pair: -order.index(pair[0].name)):
            self._remove(resource, policy)
        for resource in removed:
            self.stack.resources.pop(resource.name, None)

    def _remove(self, resource: StackResource, policy: str) -> None:
        try:
            if resource.definition.get(policy) in RETAIN_POLICIES:
                self.context.retain(resource)
            else:
                self.context.delete(resource)
        except RESOURCE_ERRORS as error:
            physical_id = resource.physical.physical_id
            self.stack.add_event(resource.name, resource.type, physical_id, "DELETE_FAILED", failure_reason(error))


def is_custom_resource(kind: str) -> bool:
    return kind.startswith("Custom::") or kind == "AWS::CloudFormation::CustomResource"


def stack_outputs(scope: Scope) -> list[dict[str, Any]]:
    """The stack's outputs, resolved; raises InvalidTemplate."""
    found = []
    for name, output in scope.template.get("Outputs", {}).items():
        if scope.is_included(output):
            entry = {"OutputKey": name, "OutputValue": as_text(scope.resolve(output["Value"]))}
            if "Description" in output:
                entry["Description"] = output["Description"]
            if "Export" in output:
                entry["ExportName"] = scope.resolve(output["Export"]["Name"])
            found.append(entry)
    return found
