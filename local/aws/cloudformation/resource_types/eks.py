"""AWS::EKS: access entries and Pod Identity associations."""

from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, completing, ignoring
from local.aws.cloudformation.intrinsics import Made


class AccessEntry:
    handled = frozenset(
        ("AccessPolicies", "ClusterName", "KubernetesGroups", "PrincipalArn", "Tags", "Type", "Username")
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        eks, where = call.client("eks"), _entry(properties)
        fields = {"Type": "type", "Username": "username", "KubernetesGroups": "kubernetesGroups"}
        entry = eks.create_access_entry(
            **where,
            tags=call.tag_map(properties),
            **{api: properties[name] for name, api in fields.items() if name in properties},
        )["accessEntry"]
        made = Made(
            f"{properties['PrincipalArn']}|{properties['ClusterName']}",
            {"AccessEntryArn": entry["accessEntryArn"]},
        )
        with completing(made):
            self._policies(call, properties, {})
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        fields = {"kubernetesGroups": properties.get("KubernetesGroups", [])}
        if "Username" in properties:
            fields["username"] = properties["Username"]
        call.client("eks").update_access_entry(**_entry(properties), **fields)
        self._policies(call, properties, before)
        return made

    def _policies(self, call: Call, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        eks, where = call.client("eks"), _entry(properties)
        new, old = properties.get("AccessPolicies", []), before.get("AccessPolicies", [])
        for policy in new:
            if policy not in old:
                scope = {key.lower(): value for key, value in policy["AccessScope"].items()}
                eks.associate_access_policy(**where, policyArn=policy["PolicyArn"], accessScope=scope)
        kept = {policy["PolicyArn"] for policy in new}
        for policy in old:
            if policy["PolicyArn"] not in kept:
                eks.disassociate_access_policy(**where, policyArn=policy["PolicyArn"])

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("eks").delete_access_entry, **_entry(properties))


def _entry(properties: Mapping[str, Any]) -> dict[str, str]:
    return {"clusterName": properties["ClusterName"], "principalArn": properties["PrincipalArn"]}


class PodIdentityAssociation:
    handled = frozenset(("ClusterName", "Namespace", "RoleArn", "ServiceAccount", "Tags"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        association = call.client("eks").create_pod_identity_association(
            clusterName=properties["ClusterName"],
            namespace=properties["Namespace"],
            serviceAccount=properties["ServiceAccount"],
            roleArn=properties["RoleArn"],
            tags=call.tag_map(properties),
        )["association"]
        attributes = {
            "AssociationArn": association["associationArn"],
            "AssociationId": association["associationId"],
        }
        return Made(association["associationArn"], attributes)

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        call.client("eks").update_pod_identity_association(
            clusterName=properties["ClusterName"],
            associationId=made.attributes["AssociationId"],
            roleArn=properties["RoleArn"],
        )
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring(
            "ResourceNotFound",
            call.client("eks").delete_pod_identity_association,
            clusterName=properties["ClusterName"],
            associationId=made.attributes["AssociationId"],
        )
