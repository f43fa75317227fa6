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
from local.aws.cloudformation.calls import Failed, reason_of
from local.aws.cloudformation.intrinsics import Scope, as_text
from local.aws.cloudformation.stacks import Request, Resource, Stack
from local.aws.cloudformation.template import Invalid, in_order
from local.aws.cloudformation.workbench import ERRORS, RETAINING, Workbench


@dataclass(frozen=True)
class Undo:
    """One step back, of the resource it concerns; `failed` is the status it gets when that fails."""

    resource: Resource
    run: Callable[[], None]
    failed: str


@dataclass
class Deployment:
    """One create or update under way. `leftover` are replaced resources, deleted once all is well."""

    bench: Workbench
    request: Request
    scope: Scope
    undo: list[Undo] = field(default_factory=list)
    leftover: list[Resource] = field(default_factory=list)

    @property
    def stack(self) -> Stack:
        return self.bench.stack

    def create(self) -> None:
        stack = self.stack
        stack.enter("CREATE_IN_PROGRESS", "User Initiated")
        if self._attempt():
            stack.enter("CREATE_COMPLETE")
        elif self.request.disable_rollback:
            stack.enter("CREATE_FAILED", stack.reason)
        else:
            stack.enter("ROLLBACK_IN_PROGRESS", f"{stack.reason} Rollback requested by user.")
            stack.enter("ROLLBACK_COMPLETE" if self._roll_back() else "ROLLBACK_FAILED")

    def update(self, before: Request) -> None:
        stack = self.stack
        parameters, outputs = stack.parameters, stack.outputs
        stack.enter("UPDATE_IN_PROGRESS", "User Initiated")
        if self._attempt():
            stack.updated = datetime.now(UTC)
            stack.enter("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
            self._clean_up(before)
            stack.enter("UPDATE_COMPLETE")
        elif self.request.disable_rollback:
            stack.enter("UPDATE_FAILED", stack.reason)
        else:
            stack.enter("UPDATE_ROLLBACK_IN_PROGRESS", stack.reason)
            done = self._roll_back()
            stack.request = replace(before, token=self.request.token)
            stack.parameters, stack.outputs = parameters, outputs
            stack.enter("UPDATE_ROLLBACK_COMPLETE" if done else "UPDATE_ROLLBACK_FAILED")

    def _attempt(self) -> bool:
        """Make every resource as the template says, then the outputs; False with the stack's reason set."""
        self.stack.request = self.request
        self.stack.parameters = dict(self.scope.parameters)
        resources = self.request.template["Resources"]
        for name in in_order(resources):
            if self.scope.is_wanted(resources[name]) and not self._make(name, resources[name]):
                self.stack.reason = f"The following resource(s) failed to create or update: [{name}]."
                return False
        try:
            self.stack.outputs = outputs_of(self.scope)
        except Invalid as error:
            self.stack.reason = str(error)
            return False
        return True

    def _make(self, name: str, definition: Mapping[str, Any]) -> bool:
        before = self.stack.resources.get(name)
        try:
            self._bring_about(name, definition, before)
        except ERRORS as error:
            self._note_failure(name, definition, before, error)
            return False
        except Exception as error:  # noqa: BLE001 - a fault of this code is a failed resource, not a stuck stack
            traceback.print_exc(file=sys.stderr)
            self._note_failure(name, definition, before, error)
            return False
        self.scope.made[name] = self.stack.resources[name].made
        return True

    def _bring_about(self, name: str, definition: Mapping[str, Any], before: Resource | None) -> None:
        properties = self._properties(definition)
        if before is None:
            self._create(name, definition, properties, None)
        elif before.type != definition["Type"] or self._replaces(before, properties):
            reason = "Requested update requires the creation of a new physical resource; hence creating one."
            self.stack.tell(name, before.type, before.made.physical_id, "UPDATE_IN_PROGRESS", reason)
            self._create(name, definition, properties, before)
        elif properties != before.properties:
            self._change(before, definition, properties)
        else:
            self.stack.resources[name] = replace(before, definition=definition)

    def _properties(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Resolved and checked against AWS's schema and against what the handler passes on."""
        kind = definition["Type"]
        properties = self.scope.resolve(definition.get("Properties", {}))
        if is_custom(kind):
            return dict(properties)
        fitted = schemas.fitted(kind, self.bench.session.world.region, properties)
        for name in sorted(fitted.keys() - self.bench.handlers(kind).handled):
            raise Failed(f"{kind}: the local CloudFormation does not know what to do with property {name}")
        return fitted

    def _replaces(self, before: Resource, properties: Mapping[str, Any]) -> bool:
        if is_custom(before.type):
            return bool(before.properties.get("ServiceToken") != properties.get("ServiceToken"))
        return schemas.replaces(before.type, self.bench.session.world.region, before.properties, properties)

    def _create(
        self, name: str, definition: Mapping[str, Any], properties: Mapping[str, Any], before: Resource | None
    ) -> None:
        kind = definition["Type"]
        self.stack.tell(name, kind, "", "CREATE_IN_PROGRESS")
        made = self.bench.handlers(kind).create(self.bench.call(name, kind), properties)
        created = Resource(name, kind, made, properties, definition)
        self.stack.set(created, "UPDATE_COMPLETE" if before else "CREATE_COMPLETE")
        self._undo_create(created, before)
        if before is not None:
            self.leftover.append(before)

    def _undo_create(self, created: Resource, before: Resource | None) -> None:
        def run() -> None:
            if created.definition.get("DeletionPolicy") == "Retain":
                self.bench.skip(created)
            else:
                self.bench.delete(created)
            if before is not None:
                self.stack.resources[before.name] = before

        self.undo.append(Undo(created, run, "DELETE_FAILED"))

    def _change(self, before: Resource, definition: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
        name, kind = before.name, before.type
        self.stack.set(before, "UPDATE_IN_PROGRESS")
        self.undo.append(Undo(before, lambda: self._change_back(before, properties), "UPDATE_FAILED"))
        made = self.bench.handlers(kind).update(self.bench.call(name, kind), before.made, properties, before.properties)
        if made.physical_id != before.made.physical_id:
            self.leftover.append(before)
        changed = replace(before, made=made, properties=properties, definition=definition)
        self.stack.set(changed, "UPDATE_COMPLETE")

    def _change_back(self, before: Resource, properties: Mapping[str, Any]) -> None:
        """Update to what was; a physical resource that only the update made is deleted."""
        now, kind = self.stack.resources[before.name], before.type
        made = self.bench.handlers(kind).update(
            self.bench.call(before.name, kind), now.made, before.properties, properties
        )
        self.stack.set(replace(before, made=made), "UPDATE_COMPLETE")
        if now.made.physical_id not in (made.physical_id, before.made.physical_id):
            self.bench.delete(now)

    def _note_failure(
        self, name: str, definition: Mapping[str, Any], before: Resource | None, error: Exception
    ) -> None:
        """Tell it; what a failed creation left behind is deleted with the roll-back."""
        made = error.made if isinstance(error, Failed) else None
        if before is not None:
            self.stack.set(before, "UPDATE_FAILED", reason_of(error))
        elif made is not None:
            properties = self.scope.resolve(definition.get("Properties", {}))
            left = Resource(name, definition["Type"], made, properties, definition)
            self._undo_create(self.stack.set(left, "CREATE_FAILED", reason_of(error)), None)
        else:
            self.stack.tell(name, definition["Type"], "", "CREATE_FAILED", reason_of(error))

    def _roll_back(self) -> bool:
        """Undo every step, latest first; False if one could not be undone."""
        done = True
        for step in reversed(self.undo):
            try:
                step.run()
            except ERRORS as error:
                done = False
                self.stack.set(step.resource, step.failed, reason_of(error))
        self.undo.clear()
        return done

    def _clean_up(self, before: Request) -> None:
        """Delete what was replaced and what the template no longer has; failures here are only told."""
        resources = self.request.template["Resources"]
        wanted = {name for name, resource in resources.items() if self.scope.is_wanted(resource)}
        removed = [self.stack.resources[name] for name in self.stack.resources.keys() - wanted]
        order = in_order(before.template["Resources"])
        policies = [(one, "UpdateReplacePolicy") for one in self.leftover] + [(r, "DeletionPolicy") for r in removed]
        for resource, policy in sorted(policies, key=lambda pair: -order.index(pair[0].name)):
            self._remove(resource, policy)
        for resource in removed:
            self.stack.resources.pop(resource.name, None)

    def _remove(self, resource: Resource, policy: str) -> None:
        try:
            if resource.definition.get(policy) in RETAINING:
                self.bench.skip(resource)
            else:
                self.bench.delete(resource)
        except ERRORS as error:
            physical_id = resource.made.physical_id
            self.stack.tell(resource.name, resource.type, physical_id, "DELETE_FAILED", reason_of(error))


def is_custom(kind: str) -> bool:
    return kind.startswith("Custom::") or kind == "AWS::CloudFormation::CustomResource"


def outputs_of(scope: Scope) -> list[dict[str, Any]]:
    """The stack's outputs, resolved; raises Invalid."""
    found = []
    for name, output in scope.template.get("Outputs", {}).items():
        if scope.is_wanted(output):
            entry = {"OutputKey": name, "OutputValue": as_text(scope.resolve(output["Value"]))}
            if "Description" in output:
                entry["Description"] = output["Description"]
            if "Export" in output:
                entry["ExportName"] = scope.resolve(output["Export"]["Name"])
            found.append(entry)
    return found
