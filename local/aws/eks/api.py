"""EKS's HTTP API over `EksBackend`."""

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.eks.backend import AccessEntry, EksBackend, PodIdentityAssociation
from local.aws.emulator import Emulator

type Answer = Callable[[EksBackend, Mapping[str, Any]], Mapping[str, Any]]


def add(emulator: Emulator) -> None:
    backend = emulator.component(EksBackend)
    for action, answer in ANSWERS.items():
        emulator.handle("eks", action, partial(_reply, backend, emulator.region, answer))
    emulator.route("POST", "/_local/clusters", lambda body, _: _shown(backend.register_cluster(body)))


def _reply(backend: EksBackend, region: str, answer: Answer, request: AwsRequest) -> AwsResponse:
    params = request.params
    # The clusters are of one region.
    if request.region != region:
        if request.action == "ListClusters":
            return request.reply({"clusters": []})
        name = params.get("clusterName") or params.get("name")
        raise AwsError("ResourceNotFoundException", f"No cluster found for name: {name}.")
    return request.reply(answer(backend, params))


def _shown(cluster: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cluster.items() if key != "createdAt"}


def _entry(entry: AccessEntry) -> dict[str, Any]:
    return {
        "accessEntry": {
            "clusterName": entry.cluster,
            "principalArn": entry.principal,
            "kubernetesGroups": list(entry.groups),
            "accessEntryArn": entry.arn,
            "createdAt": entry.created,
            "modifiedAt": entry.modified,
            "tags": entry.tags,
            "username": entry.username,
            "type": entry.type,
        }
    }


def _policy(entry: AccessEntry, arn: str) -> dict[str, Any]:
    scope, at = entry.policies[arn]
    return {"policyArn": arn, "accessScope": scope, "associatedAt": at, "modifiedAt": at}


def _identity(identity: PodIdentityAssociation) -> dict[str, Any]:
    return {
        "association": {
            "clusterName": identity.cluster,
            "namespace": identity.namespace,
            "serviceAccount": identity.service_account,
            "roleArn": identity.role_arn,
            "associationArn": identity.arn,
            "associationId": identity.id,
            "tags": identity.tags,
            "createdAt": identity.created,
            "modifiedAt": identity.created,
        }
    }


def _paged(name: str, items: list[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """EKS pages with maxResults and nextToken, 100 at a time."""
    asked = {"MaxResults": params.get("maxResults"), "NextToken": params.get("nextToken")}
    some, token = page(items, asked, default=100)
    return {name: some} | ({"nextToken": token["NextToken"]} if token else {})


def _create_entry(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    return _entry(
        eks.create_access_entry(
            params["clusterName"],
            params["principalArn"],
            type=params.get("type") or "STANDARD",
            username=params.get("username"),
            groups=params.get("kubernetesGroups") or (),
            tags=params.get("tags"),
        )
    )


def _update_entry(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    return _entry(
        eks.update_access_entry(
            params["clusterName"],
            params["principalArn"],
            groups=params.get("kubernetesGroups"),
            username=params.get("username"),
        )
    )


def _delete_entry(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    eks.delete_access_entry(params["clusterName"], params["principalArn"])
    return {}


def _list_entries(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    entries = eks.access_entries(params["clusterName"], params.get("associatedPolicyArn"))
    return _paged("accessEntries", [entry.principal for entry in entries], params)


def _associate(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    arn = params["policyArn"]
    entry = eks.associate_access_policy(params["clusterName"], params["principalArn"], arn, params["accessScope"])
    return {
        "clusterName": entry.cluster,
        "principalArn": entry.principal,
        "associatedAccessPolicy": _policy(entry, arn),
    }


def _disassociate(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    eks.disassociate_access_policy(params["clusterName"], params["principalArn"], params["policyArn"])
    return {}


def _list_policies(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    entry = eks.access_entry(params["clusterName"], params["principalArn"])
    policies = [_policy(entry, arn) for arn in sorted(entry.policies)]
    return {"clusterName": entry.cluster, "principalArn": entry.principal} | _paged(
        "associatedAccessPolicies", policies, params
    )


def _tag(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    eks.entry_tags(params["resourceArn"]).update(params["tags"])
    return {}


def _create_identity(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    return _identity(
        eks.create_association(
            params["clusterName"],
            params["namespace"],
            params["serviceAccount"],
            params["roleArn"],
            params.get("tags"),
        )
    )


def _list_identities(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    shown = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    found = []
    for identity in eks.associations(params["clusterName"]):
        if params.get("namespace") not in (None, identity.namespace):
            continue
        if params.get("serviceAccount") not in (None, identity.service_account):
            continue
        found.append({key: _identity(identity)["association"][key] for key in shown})
    return _paged("associations", found, params)


def _update_config(eks: EksBackend, params: Mapping[str, Any]) -> dict[str, Any]:
    """Of the authentication mode alone, and at once; AWS takes minutes."""
    mode = (params.get("accessConfig") or {}).get("authenticationMode")
    if not mode:
        raise AwsError("InvalidParameterException", "Only accessConfig.authenticationMode is implemented here.")
    eks.set_authentication_mode(params["name"], mode)
    changed = {"type": "AuthenticationMode", "value": f'"{mode}"'}
    return {
        "update": {"id": str(uuid.uuid4()), "status": "Successful", "type": "AccessConfigUpdate", "params": [changed]}
    }


ANSWERS: Mapping[str, Answer] = {
    "DescribeCluster": lambda eks, params: {"cluster": eks.cluster(params["name"])},
    "UpdateClusterConfig": _update_config,
    "ListClusters": lambda eks, params: _paged("clusters", eks.cluster_names(), params),
    "CreateAccessEntry": _create_entry,
    "DescribeAccessEntry": lambda eks, params: _entry(eks.access_entry(params["clusterName"], params["principalArn"])),
    "UpdateAccessEntry": _update_entry,
    "DeleteAccessEntry": _delete_entry,
    "ListAccessEntries": _list_entries,
    "AssociateAccessPolicy": _associate,
    "DisassociateAccessPolicy": _disassociate,
    "ListAssociatedAccessPolicies": _list_policies,
    "TagResource": _tag,
    "CreatePodIdentityAssociation": _create_identity,
    "DescribePodIdentityAssociation": lambda eks, params: _identity(
        eks.association(params["clusterName"], params["associationId"])
    ),
    "UpdatePodIdentityAssociation": lambda eks, params: _identity(
        eks.update_association(params["clusterName"], params["associationId"], params["roleArn"])
    ),
    "DeletePodIdentityAssociation": lambda eks, params: _identity(
        eks.delete_association(params["clusterName"], params["associationId"])
    ),
    "ListPodIdentityAssociations": _list_identities,
}
