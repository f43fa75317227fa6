"""AWS::EKS: access entries and Pod Identity associations."""

from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ignore_error, partial_creation


class AccessEntry:
    supported_properties = frozenset(
        ("AccessPolicies", "ClusterName", "KubernetesGroups", "PrincipalArn", "Tags", "Type", "Username")
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        eks, where = request.client("eks"), _entry(properties)
        fields = {"Type": "type", "Username": "username", "KubernetesGroups": "kubernetesGroups"}
        entry = eks.create_access_entry(
            **where,
            tags=request.tag_map(properties),
            **{api: properties[name] for name, api in fields.items() if name in properties},
        )["accessEntry"]
        resource = PhysicalResource(
            f"{properties['PrincipalArn']}|{properties['ClusterName']}",
            {"AccessEntryArn": entry["accessEntryArn"]},
        )
        with partial_creation(resource):
            self._policies(request, properties, {})
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        fields = {"kubernetesGroups": properties.get("KubernetesGroups", [])}
        if "Username" in properties:
            fields["username"] = properties["Username"]
        request.client("eks").update_access_entry(**_entry(properties), **fields)
        self._policies(request, properties, before)
        return resource

    def _policies(self, request: HandlerRequest, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        eks, where = request.client("eks"), _entry(properties)
        new, old = properties.get("AccessPolicies", []), before.get("AccessPolicies", [])
        for policy in new:
            if policy not in old:
                scope = {key.lower(): value for key, value in policy["AccessScope"].items()}
                eks.associate_access_policy(**where, policyArn=policy["PolicyArn"], accessScope=scope)
        kept = {policy["PolicyArn"] for policy in new}
        for policy in old:
            if policy["PolicyArn"] not in kept:
                eks.disassociate_access_policy(**where, policyArn=policy["PolicyArn"])

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ResourceNotFound", request.client("eks").delete_access_entry, **_entry(properties))


def _entry(properties: Mapping[str, Any]) -> dict[str, str]:
    return {"clusterName": properties["ClusterName"], "principalArn": properties["PrincipalArn"]}


class PodIdentityAssociation:
    supported_properties = frozenset(("ClusterName", "Namespace", "RoleArn", "ServiceAccount", "Tags"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        association = request.client("eks").create_pod_identity_association(
            clusterName=properties["ClusterName"],
            namespace=properties["Namespace"],
            serviceAccount=properties["ServiceAccount"],
            roleArn=properties["RoleArn"],
            tags=request.tag_map(properties),
        )["association"]
        attributes = {
            "AssociationArn": association["associationArn"],
            "AssociationId": association["associationId"],
        }
        return PhysicalResource(association["associationArn"], attributes)

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        request.client("eks").update_pod_identity_association(
            clusterName=properties["ClusterName"],
            associationId=resource.attributes["AssociationId"],
            roleArn=properties["RoleArn"],
        )
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "ResourceNotFound",
            request.client("eks").delete_pod_identity_association,
            clusterName=properties["ClusterName"],
            associationId=resource.attributes["AssociationId"],
        )
