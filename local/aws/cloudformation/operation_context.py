"""What a stack operation works with: the stack, the way to AWS, and deletion of single resources."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from botocore.exceptions import BotoCoreError, ClientError

from local.aws.authorization.propagation import IamPropagation
from local.aws.cloudformation import schemas
from local.aws.cloudformation.resource_handlers import (
    HandlerRequest,
    ResourceFailed,
    ResourceType,
    Session,
    failure_reason,
)
from local.aws.cloudformation.stacks import Stack, StackResource
from local.aws.cloudformation.template import InvalidTemplate, dependencies, dependency_order

RESOURCE_ERRORS = (ResourceFailed, ClientError, BotoCoreError, InvalidTemplate, schemas.InvalidProperties)
RETAIN_POLICIES = ("Retain", "RetainExceptOnCreate")

type FindResourceType = Callable[[str], ResourceType]


@dataclass(frozen=True)
class OperationContext:
    stack: Stack
    find_resource_type: FindResourceType
    session: Session
    tags: Mapping[str, str]

    def handler_request(self, resource_name: str, kind: str) -> HandlerRequest:
        return HandlerRequest(self.session, self.stack.name, self.stack.id, resource_name, kind, self.tags)

    def await_consistency(self) -> None:
        """CloudFormation ends an operation when what it changed is seen everywhere; what a resource depends on need
        not be before. https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/stack-resource-configuration-complete.html
        """
        time.sleep(self.session.emulator.component(IamPropagation).seconds_left())

    def delete(self, resource: StackResource) -> None:
        """Delete one physical resource; raises one of RESOURCE_ERRORS."""
        self._tell(resource, "DELETE_IN_PROGRESS")
        handler = self.find_resource_type(resource.type)
        handler.delete(self.handler_request(resource.name, resource.type), resource.physical, resource.properties)
        self._tell(resource, "DELETE_COMPLETE")
        self._forget(resource)

    def retain(self, resource: StackResource) -> None:
        """Leave the physical resource alone, the stack no longer has it."""
        self._tell(resource, "DELETE_SKIPPED")
        self._forget(resource)

    def _tell(self, resource: StackResource, status: str) -> None:
        self.stack.add_event(resource.name, resource.type, resource.physical.physical_id, status)

    def _forget(self, resource: StackResource) -> None:
        """Unless another physical resource has taken its logical name."""
        current = self.stack.resources.get(resource.name)
        if current is not None and current.physical.physical_id == resource.physical.physical_id:
            del self.stack.resources[resource.name]

    def delete_stack(self, retain: frozenset[str]) -> None:
        """Everything in reverse order; what cannot go, and what it needs, leave the stack DELETE_FAILED."""
        stack = self.stack
        stack.set_status("DELETE_IN_PROGRESS", "User Initiated")
        failed: list[str] = []
        needed: set[str] = set()
        for name in reversed(dependency_order({name: r.definition for name, r in stack.resources.items()})):
            resource = stack.resources[name]
            if name in needed:
                needed |= dependencies(resource.definition)
                continue
            try:
                if name in retain or resource.definition.get("DeletionPolicy") in RETAIN_POLICIES:
                    self.retain(resource)
                else:
                    self.delete(resource)
            except RESOURCE_ERRORS as error:
                failed.append(name)
                needed |= dependencies(resource.definition)
                stack.set_resource_status(resource, "DELETE_FAILED", failure_reason(error))
        if failed:
            names = ", ".join(sorted(failed))
            stack.set_status("DELETE_FAILED", f"The following resource(s) failed to delete: [{names}]. ")
        else:
            stack.outputs = []
            stack.deleted = datetime.now(UTC)
            stack.set_status("DELETE_COMPLETE")
