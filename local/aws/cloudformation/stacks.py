"""What CloudFormation knows: stacks with their resources and events, change sets, exports."""

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.template import Template
from local.aws.emulator import Emulator


@dataclass(frozen=True)
class StackResource:
    """One resource of a stack as it is. `properties` are resolved, as the handler got them."""

    name: str
    type: str
    physical: PhysicalResource
    properties: Mapping[str, Any]
    definition: Mapping[str, Any]
    status: str = "CREATE_COMPLETE"
    reason: str = ""
    updated_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True)
class StackEvent:
    id: str
    timestamp: datetime
    name: str
    type: str
    physical_id: str
    status: str
    reason: str
    token: str


@dataclass(frozen=True)
class StackInput:
    """What a create or update asks for."""

    template_body: str
    template: Template
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    role_arn: str = ""
    token: str = ""
    disable_rollback: bool = False
    capabilities: tuple[str, ...] = ()


@dataclass
class Stack:
    """A stack and its history. `resources` holds what exists, keyed by logical name."""

    name: str
    id: str
    created: datetime
    status: str
    input: StackInput | None = None
    reason: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, StackResource] = field(default_factory=dict)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    events: list[StackEvent] = field(default_factory=list)
    updated: datetime | None = None
    deleted: datetime | None = None
    change_set_id: str = ""
    termination_protection: bool = False
    idle: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.idle.set()

    @property
    def in_progress(self) -> bool:
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    def set_status(self, status: str, reason: str = "") -> None:
        """Set the stack's status and tell it in an event."""
        self.status, self.reason = status, reason
        self.add_event(self.name, "AWS::CloudFormation::Stack", self.id, status, reason)

    def add_event(self, name: str, kind: str, physical_id: str, status: str, reason: str = "") -> None:
        token = self.input.token if self.input else ""
        event = StackEvent(str(uuid.uuid4()), datetime.now(UTC), name, kind, physical_id, status, reason, token)
        self.events.append(event)

    def set_resource_status(self, resource: StackResource, status: str, reason: str = "") -> StackResource:
        """Record a resource as it now is, with an event."""
        resource = replace(resource, status=status, reason=reason, updated_at=datetime.now(UTC))
        self.resources[resource.name] = resource
        self.add_event(resource.name, resource.type, resource.physical.physical_id, status, reason)
        return resource


@dataclass
class ChangeSet:
    name: str
    id: str
    stack: Stack
    kind: str
    input: StackInput
    changes: list[dict[str, Any]]
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    status: str = "CREATE_COMPLETE"
    execution_status: str = "AVAILABLE"
    reason: str = ""
    description: str = ""


class Stacks:
    """Everything CloudFormation holds in this emulator. See `Emulator.component`."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.lock = threading.RLock()
        self.all: list[Stack] = []
        self.change_sets: dict[str, ChangeSet] = {}

    def find(self, name_or_id: str) -> Stack | None:
        """By name, a stack that is not deleted; by id, any."""
        for stack in reversed(self.all):
            if stack.id == name_or_id or (stack.name == name_or_id and stack.status != "DELETE_COMPLETE"):
                return stack
        return None

    def create_stack(self, name: str, status: str) -> Stack:
        identity = f"arn:aws:cloudformation:{self.emulator.region}:{self.emulator.account}:stack/{name}/{uuid.uuid4()}"
        stack = Stack(name, identity, datetime.now(UTC), status)
        self.all.append(stack)
        return stack

    def change_set(self, name: str, stack: str | None) -> ChangeSet | None:
        """By ARN, or by name and stack; of a deleted stack's, only those asked for by the stack's id."""
        if name in self.change_sets:
            return self.change_sets[name]
        owner = self.find(stack) if stack else None
        named = (
            change_set
            for change_set in self.change_sets.values()
            if change_set.name == name and change_set.stack is owner
        )
        return next(named, None)

    def exports(self) -> dict[str, tuple[str, str]]:
        """Export name → (value, exporting stack's id), of the stacks that exist."""
        return {
            output["ExportName"]: (output["OutputValue"], stack.id)
            for stack in self.all
            if stack.status != "DELETE_COMPLETE"
            for output in stack.outputs
            if "ExportName" in output
        }
