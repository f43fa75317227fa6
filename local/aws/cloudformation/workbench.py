"""What a stack operation works with: the stack, the way to AWS, and deletion of single resources."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from botocore.exceptions import BotoCoreError, ClientError

from local.aws.cloudformation import schemas
from local.aws.cloudformation.calls import Call, Failed, ResourceType, Session, reason_of
from local.aws.cloudformation.stacks import Resource, Stack
from local.aws.cloudformation.template import Invalid, in_order

ERRORS = (Failed, ClientError, BotoCoreError, Invalid, schemas.Unfit)
RETAINING = ("Retain", "RetainExceptOnCreate")

type Handlers = Callable[[str], ResourceType]


@dataclass(frozen=True)
class Workbench:
    stack: Stack
    handlers: Handlers
    session: Session
    tags: Mapping[str, str]

    def call(self, resource_name: str, kind: str) -> Call:
        return Call(self.session, self.stack.name, self.stack.id, resource_name, kind, self.tags)

    def delete(self, resource: Resource) -> None:
        """Delete one physical resource; raises one of ERRORS."""
        self._tell(resource, "DELETE_IN_PROGRESS")
        handler = self.handlers(resource.type)
        handler.delete(self.call(resource.name, resource.type), resource.made, resource.properties)
        self._tell(resource, "DELETE_COMPLETE")
        self._forget(resource)

    def skip(self, resource: Resource) -> None:
        """Leave the physical resource alone, the stack no longer has it."""
        self._tell(resource, "DELETE_SKIPPED")
        self._forget(resource)

    def _tell(self, resource: Resource, status: str) -> None:
        self.stack.tell(resource.name, resource.type, resource.made.physical_id, status)

    def _forget(self, resource: Resource) -> None:
        """Unless another physical resource has taken its logical name."""
        current = self.stack.resources.get(resource.name)
        if current is not None and current.made.physical_id == resource.made.physical_id:
            del self.stack.resources[resource.name]

    def delete_stack(self, retain: frozenset[str]) -> None:
        """Everything in reverse order; what cannot go leaves the stack DELETE_FAILED."""
        stack = self.stack
        stack.enter("DELETE_IN_PROGRESS", "User Initiated")
        failed = []
        for name in reversed(in_order({name: r.definition for name, r in stack.resources.items()})):
            resource = stack.resources[name]
            try:
                if name in retain or resource.definition.get("DeletionPolicy") in RETAINING:
                    self.skip(resource)
                else:
                    self.delete(resource)
            except ERRORS as error:
                failed.append(name)
                stack.set(resource, "DELETE_FAILED", reason_of(error))
        if failed:
            names = ", ".join(sorted(failed))
            stack.enter("DELETE_FAILED", f"The following resource(s) failed to delete: [{names}]. ")
        else:
            stack.outputs = []
            stack.deleted = datetime.now(UTC)
            stack.enter("DELETE_COMPLETE")
