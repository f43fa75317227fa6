"""Checks of the account: node roles, quotas, the role for spot, the permissions boundary."""

from typing import Final

from spotwright.workflows.install.preflight.boundary import needed_actions, refused_actions
from spotwright.workflows.install.preflight.facts import Facts, KmsKey, NotAsked, Role, Target
from spotwright.workflows.install.preflight.verdict import NotChecked, Problem, Verdict, Works

# What the queues wake at the same time when all are busy; each function gets less where the account has less.
NEEDED_CONCURRENCY: Final = 29
_SHOWN_ACTIONS: Final = 6
_CONCURRENCY_QUOTA: Final = "L-B99A9384"
# What to do where a key is in one of these states. https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html
_AFTER_STATE: Final = {
    "Creating": "wait until it is Enabled",
    "Disabled": "aws kms enable-key --key-id {key}",
    "PendingDeletion": "aws kms cancel-key-deletion --key-id {key}, then aws kms enable-key --key-id {key}",
    "PendingImport": "import its key material (aws kms import-key-material)",
    "Updating": "wait until it is Enabled",
}
# Whoever has one of a group may do what the group is for.
# https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html
_POLICIES: Final = (
    ("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"),
    ("AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPowerUser"),
)


def check_node_roles(target: Target, facts: Facts) -> Verdict:
    problems, unknown = [], []
    for name in target.node_roles:
        role = facts.roles.get(name, NotAsked("nobody asked"))
        if isinstance(role, NotAsked):
            unknown.append(f"{name}: {role.reason}")
        elif said := _role_problem(name, role):
            problems.append(said)
        elif role is not None and (lacking := _lacking(role)):
            unknown.append(f"{name} has policies of its own; whether they allow what {lacking[0]} does is not known")
    if problems:
        return Problem("; ".join(problems))
    if unknown:
        return NotChecked("; ".join(unknown))
    return Works(f"{', '.join(target.node_roles)} can be nodes' roles")


def _role_problem(name: str, role: Role | None) -> str:
    if role is None:
        return f"node role {name} does not exist: create it, or take it out of nodeRoles in cdk.json"
    folder, _, short = name.rpartition("/")
    if role.path.strip("/") != folder:
        named = f"{role.path}{short}".lstrip("/")
        return f"node role {name}: IAM has {short} under the path {role.path}: name it {named} in nodeRoles in cdk.json"
    if not role.trusted_services & {"ec2.amazonaws.com", "ec2.amazonaws.com.cn"}:
        return f"node role {name} does not trust ec2.amazonaws.com: let its trust policy allow sts:AssumeRole to it"
    lacking = _lacking(role)
    if lacking and not role.has_other_policies:
        attach = f"aws iam attach-role-policy --role-name {name.rpartition('/')[2]} --policy-arn"
        return f"node role {name} lacks {lacking[0]}: {attach} arn:{role.partition}:iam::aws:policy/{lacking[0]}"
    return ""


def _lacking(role: Role) -> list[str]:
    """The usual policy of each group of which the role has none."""
    return [group[0] for group in _POLICIES if not role.policies & set(group)]


def check_concurrency(_target: Target, facts: Facts) -> Verdict:
    if isinstance(facts.concurrency, NotAsked):
        return NotChecked(facts.concurrency.reason)
    if facts.concurrency >= NEEDED_CONCURRENCY:
        return Works(f"{facts.concurrency} functions may run at the same time")
    return Problem(
        f"only {facts.concurrency} functions of the account may run at the same time, Spotwright's queues wake up to"
        f" {NEEDED_CONCURRENCY}: aws service-quotas request-service-quota-increase --service-code lambda --quota-code"
        f" {_CONCURRENCY_QUOTA} --desired-value 1000"
    )


def check_spot_role(_target: Target, facts: Facts) -> Verdict:
    if isinstance(facts.has_spot_role, NotAsked):
        return NotChecked(facts.has_spot_role.reason)
    if facts.has_spot_role:
        return Works("AWSServiceRoleForEC2Spot is there")
    return Problem(
        "AWSServiceRoleForEC2Spot does not exist, and EC2 would refuse spot: aws iam create-service-linked-role"
        " --aws-service-name spot.amazonaws.com"
    )


def check_boundary(target: Target, facts: Facts) -> Verdict:
    if not target.permissions_boundary:
        return Works("none is asked for")
    if isinstance(facts.boundary, NotAsked):
        return NotChecked(facts.boundary.reason)
    if facts.boundary is None:
        return Problem(
            f"permissionsBoundary {target.permissions_boundary}: IAM has no such policy; create it, or correct the"
            " name in cdk.json"
        )
    if refused := refused_actions(facts.boundary, needed_actions(target)):
        more = f" and {len(refused) - _SHOWN_ACTIONS} more" if len(refused) > _SHOWN_ACTIONS else ""
        return Problem(
            f"permissionsBoundary {target.permissions_boundary} does not allow"
            f" {', '.join(refused[:_SHOWN_ACTIONS])}{more}, without which the functions do not work: let it allow"
            " them, or name another policy in cdk.json"
        )
    return Works(f"{target.permissions_boundary} allows every action that the roles are granted, if only in part")


def check_key(target: Target, facts: Facts) -> Verdict:
    """The key exists in the region and is enabled, and its policy lets those services use it that use no role."""
    arn = target.kms_key_arn
    if not arn:
        return Works("none is asked for")
    region = arn.split(":")[3]
    if region != target.region:
        return Problem(
            f"kmsKeyArn {arn} is a key of {region}, the stack is in {target.region}: name a key of that region"
        )
    if isinstance(facts.key, NotAsked):
        return NotChecked(facts.key.reason)
    if facts.key is None:
        return Problem(f"kmsKeyArn {arn}: KMS has no such key; create it, or correct the ARN in cdk.json")
    if facts.key.state != "Enabled":
        then = _AFTER_STATE.get(facts.key.state, "name another key in cdk.json, or see what KMS says of that state")
        return Problem(f"kmsKeyArn {arn}: its state is {facts.key.state}: {then.format(key=arn)}")
    needed = ["events.amazonaws.com", f"logs.{region}.amazonaws.com"]
    needed += ["cloudwatch.amazonaws.com"] if target.has_topic else []
    problems, lacking = [], [service for service in needed if not _is_let_use(facts.key, service)]
    if facts.key.is_conditional and not facts.key.denied_services and (lacking or not facts.key.is_left_to_iam):
        return NotChecked(
            f"the policy of {arn} lets everybody, or the account, use the key under conditions; whether these hold for"
            f" the stack's roles and {' and '.join(needed)} is not known (docs/clusters.md#a-key-of-your-own)"
        )
    if not facts.key.is_left_to_iam:
        root = f"arn:{arn.split(':')[1]}:iam::{arn.split(':')[4]}:root"
        problems.append(
            f"the policy of {arn} does not leave its use to IAM, so that what the stack's roles are granted does not"
            f" count: let it allow kms:* to {root}, as KMS's own default policy does"
        )
    if lacking:
        problems.append(
            f"the policy of {arn} does not let {' and '.join(lacking)} use the key, without which log groups are not"
            " made or messages are lost: add the statement of docs/clusters.md#a-key-of-your-own"
        )
    if problems:
        return Problem("; ".join(problems))
    return Works(f"{arn} is enabled, and its policy names {', '.join(needed)}")


def _is_let_use(key: KmsKey, service: str) -> bool:
    """Whether a key's policy lets a service use it, which has a name of its own in China, too."""
    names = {"*", service, f"{service}.cn"}
    return bool(names & key.allowed_services) and not names & key.denied_services
