"""Least privilege, spelled out: what each role may do, and nothing besides."""

import json
import re
from pathlib import Path

import botocore.session
import pytest

from infra.fields import ConfigError
from layers.core.contents import CALLS
from spotwright import workflows
from spotwright.workflows.install.preflight.boundary import OF_OPTIONS, needed_actions
from spotwright.workflows.install.preflight.facts import Target
from tests.infra import conftest
from tests.infra.conftest import KEY, MEMORY
from tests.infra.template import Resource, Statement, Template, statements

LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
FEED = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
RING = {"sqs:SendMessage"}
ROWS = {f"dynamodb:{call}" for call in ("BatchGetItem", "GetItem", "Query", "PutItem", "UpdateItem")}
READ_BODIES = {"s3:GetObject", "s3:ListBucket"}
BODIES = {*READ_BODIES, "s3:PutObject"}
ASSUME = {"sts:AssumeRole"}
ENTER = {
    *("eks:DescribeCluster", "eks:CreateAccessEntry", "eks:AssociateAccessPolicy"),
    *("eks:DeleteAccessEntry", "eks:TagResource", "eks:ListAccessEntries", "eks:DescribeAccessEntry"),
}
LOOK = {
    *("eks:ListAddons", "eks:ListClusters"),
    *("iam:GetRole", "iam:ListAttachedRolePolicies", "iam:ListRolePolicies"),
}
MAY = {
    "provision": LOGS | FEED | ROWS | BODIES | RING | ASSUME,
    "lifecycle": LOGS | FEED | ROWS | BODIES | RING | ASSUME,
    "interrupt": LOGS | FEED | ROWS | RING | {"ec2:DescribeInstances"},
    "disrupt": LOGS | FEED | ROWS | BODIES | RING | ASSUME,
    "catalog": LOGS | FEED | ROWS | BODIES | RING | ASSUME,
    "sweep": LOGS | FEED | ROWS | READ_BODIES | RING | ASSUME,
    "install": LOGS | ENTER | LOOK | {"cloudformation:DescribeStacks"},
}
RINGS = {
    "provision": {"Lifecycle", "Provision"},
    "lifecycle": {"Lifecycle", "Notices", "Provision", "Disrupt", "Catalog"},
    "interrupt": {"Notices"},
    "disrupt": {"Lifecycle", "Disrupt"},
    "catalog": {"Provision", "Lifecycle", "Catalog"},
    "sweep": {"Provision", "Lifecycle", "Notices", "Catalog", "Sweep"},
    "install": set(),
}
READERS = {"provision", "disrupt", "sweep", "catalog", "lifecycle"}
ACTORS = {"lifecycle", "catalog"}

#: Actions of EC2 and IAM that change something.
WRITES = re.compile(r"(ec2|iam):(?!Describe|Get|List)")


def _actions(statements: list[Statement]) -> set[str]:
    return {action for statement in statements for action in statement.actions}


@pytest.mark.parametrize("name", MAY)
def test_a_function_may_do_exactly_this(plain: Template, name: str) -> None:
    granted = plain.statements(plain.role_id(name))
    assert all(statement.effect == "Allow" for statement in granted)
    assert _actions(granted) == MAY[name]


@pytest.mark.parametrize("name", RINGS)
def test_a_function_rings_just_these_doorbells(plain: Template, name: str) -> None:
    sends = [statement for statement in plain.statements(plain.role_id(name)) if "sqs:SendMessage" in statement.actions]
    rung = {resource.strip("<").split("Queue")[0] for statement in sends for resource in statement.resources}
    assert rung == RINGS[name]


@pytest.mark.parametrize("name", sorted(RINGS.keys() - {"install"}))
def test_a_function_is_woken_by_just_the_queues_that_it_may_read(plain: Template, name: str) -> None:
    granted = plain.statements(plain.role_id(name))
    readable = {queue for each in granted if "sqs:ReceiveMessage" in each.actions for queue in each.resources}
    role = f"<{plain.role_id(name)}.Arn>"
    functions = {id for id, function in plain.of("AWS::Lambda::Function").items() if function["Role"] == role}
    feeds = plain.of("AWS::Lambda::EventSourceMapping").values()
    assert readable
    assert readable == {feed["EventSourceArn"] for feed in feeds if feed["FunctionName"].strip("<>") in functions}


@pytest.mark.parametrize("name", ["provision", "interrupt", "disrupt", "catalog", "sweep"])
def test_a_function_may_ring_what_its_workflow_rings(name: str) -> None:
    folder = Path(workflows.__file__).parent
    modules = [*folder.glob(f"{name}.py"), *folder.glob(f"{name}/**/*.py")]
    rung = {queue for module in modules for queue in re.findall(r'ring\(\s*"(\w+)"', module.read_text())}
    assert rung
    assert {queue.capitalize() for queue in rung} <= RINGS[name]


@pytest.mark.parametrize(("role", "functions"), [("Read", READERS), ("Act", ACTORS)])
def test_a_clusters_role_is_assumed_by_those_who_need_it_and_both_sides_agree(
    full: Template, role: str, functions: set[str]
) -> None:
    for cluster in ("one", "two"):
        id = full.cluster_role(cluster, role)
        trust = full.of("AWS::IAM::Role")[id]["AssumeRolePolicyDocument"]["Statement"]
        trusted = [each["Principal"]["AWS"] for each in trust]
        assert {arn for each in trusted for arn in ([each] if isinstance(each, str) else each)} == {
            f"<{full.role_id(name)}.Arn>" for name in functions
        }
        asking = {name for name in MAY if f"<{id}.Arn>" in _assumes(full, name)}
        assert asking == functions


def _assumes(template: Template, name: str) -> set[str]:
    granted = template.statements(template.role_id(name))
    return {
        resource for statement in granted if "sts:AssumeRole" in statement.actions for resource in statement.resources
    }


def test_functions_are_assumed_by_lambda_alone(full: Template) -> None:
    for name in MAY:
        (trust,) = full.of("AWS::IAM::Role")[full.role_id(name)]["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_reading_a_cluster_changes_nothing(full: Template) -> None:
    for action in _actions(full.statements(full.cluster_role("one", "Read"))):
        assert re.match(r"(ec2|eks):Describe|iam:(Get|List)|ssm:GetParameter|pricing:GetProducts", action)


def test_every_write_for_a_cluster_is_pinned_to_its_tag(full: Template) -> None:
    for cluster in ("one", "two"):
        writes = [
            statement
            for statement in full.statements(full.cluster_role(cluster, "Act"))
            if any(WRITES.match(action) for action in statement.actions)
        ]
        owned = f"kubernetes.io/cluster/{cluster}"
        pinned = {
            statement.sid for statement in writes if owned in json.dumps(statement.conditions.get("StringEquals", {}))
        }
        # Launching into a subnet or from an image changes neither; passing a role is pinned to the role.
        assert {statement.sid for statement in writes} - pinned == {"LaunchInto", "PassNodeRoles"}


def test_an_instance_is_launched_and_terminated_only_with_a_nodepool(full: Template) -> None:
    granted = {statement.sid: statement for statement in full.statements(full.cluster_role("one", "Act"))}
    assert granted["LaunchInstances"].conditions["StringLike"] == {"aws:RequestTag/karpenter.sh/nodepool": "*"}
    assert granted["Terminate"].conditions["StringLike"] == {"aws:ResourceTag/karpenter.sh/nodepool": "*"}


def test_a_launch_template_is_made_used_and_deleted_only_with_a_nodepool(full: Template) -> None:
    granted = {statement.sid: statement for statement in full.statements(full.cluster_role("one", "Act"))}
    assert granted["CreateTemplates"].conditions["StringLike"] == {"aws:RequestTag/karpenter.sh/nodepool": "*"}
    for sid in ("LaunchFrom", "VersionTemplates", "DropTemplates"):
        assert granted[sid].conditions["StringLike"] == {"aws:ResourceTag/karpenter.sh/nodepool": "*"}


def test_only_the_clusters_node_roles_are_passed_and_only_to_ec2(full: Template) -> None:
    granted = {statement.sid: statement for statement in full.statements(full.cluster_role("two", "Act"))}
    passing = granted["PassNodeRoles"]
    assert passing.actions == ("iam:PassRole",)
    role = "arn:<AWS::Partition>:iam::<AWS::AccountId>:role/"
    assert set(passing.resources) == {f"{role}{name}" for name in ("nodes/two-a", "two-b", "two-windows")}
    assert passing.conditions == {
        "StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}
    }


def test_one_clusters_role_says_nothing_about_another(full: Template) -> None:
    for mine, other in (("one", "two"), ("two", "one")):
        for name in ("Read", "Act", "Forwarder"):
            said = str(full.statements(full.cluster_role(mine, name)))
            assert f"cluster/{other}" not in said
            assert f"-{other}" not in said
            assert f"#{other}" not in said


def test_another_cells_table_is_open_for_what_all_learn_together_and_nothing_else(full: Template) -> None:
    asks = {
        "provision": {"Query"}, "disrupt": {"Query"}, "catalog": {"GetItem", "Query", "PutItem"},
        "lifecycle": {"BatchGetItem", "GetItem", "Query", "PutItem"},
    }  # fmt: skip
    arn = f"arn:<AWS::Partition>:dynamodb:<AWS::Region>:<AWS::AccountId>:table/{MEMORY}"
    for role in full.of("AWS::IAM::Role"):
        granted = [each for each in full.statements(role) if any(MEMORY in resource for resource in each.resources)]
        name = next((ask for ask in asks if full.role_id(ask) == role), "")
        assert {call for each in granted for call in each.actions} == {f"dynamodb:{one}" for one in asks.get(name, ())}
        for statement in granted:
            assert statement.resources == (arn,)
            assert statement.conditions == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["offering", "rate"]}}


def test_cells_hold_no_import_of_each_other(full: Template, plain: Template) -> None:
    """A stack that another imports from cannot be deleted."""
    assert "Fn::ImportValue" not in json.dumps(full.body)
    assert not any("Export" in each for each in plain.body["Outputs"].values())
    told = [resource["Environment"]["Variables"] for resource in full.of("AWS::Lambda::Function").values()]
    assert {each["SPOTWRIGHT_MEMORY_TABLE"] for each in told if "SPOTWRIGHT_TABLE" in each} == {MEMORY}
    assert "SPOTWRIGHT_MEMORY_TABLE" not in json.dumps(plain.body)


def test_the_forwarder_rings_and_writes_its_own_rows_and_cluster_state_only(plain: Template) -> None:
    role = plain.cluster_role("dev-eks-cluster", "Forwarder")
    granted = plain.statements(role)
    rung = {statement.sid for statement in granted if statement.actions == ("sqs:SendMessage",)}
    assert rung == {"RingProvisionQueue", "RingLifecycleQueue", "RingCatalogQueue"}
    rows, state = (statement for statement in granted if statement.sid not in rung)
    assert rows.conditions == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["forwarder#dev-eks-cluster"]}}
    assert state.actions == ("s3:PutObject",)
    (bodies,) = state.resources
    assert bodies.endswith("/clusters/dev-eks-cluster/state/*")
    (trust,) = plain.of("AWS::IAM::Role")[role]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(trust["Condition"]["StringEquals"].values()) == {"kube-system", "spotwright-forwarder"}


def _rights(template: Template, cluster: str) -> dict[str, Statement]:
    """What `install` may do for one cluster, by statement."""
    (policy,) = (
        resource["PolicyDocument"]
        for id, resource in template.of("AWS::IAM::ManagedPolicy").items()
        if id.startswith(f"InstallRights{cluster}")
    )
    return {statement.sid: statement for statement in statements(policy)}


def test_install_enters_only_as_itself_and_with_one_policy(full: Template) -> None:
    role = full.role_id("install")
    for cluster in ("one", "two"):
        granted = _rights(full, cluster)
        assert granted["EnterCluster"].conditions == {"ArnEquals": {"eks:principalArn": f"<{role}.Arn>"}}
        (policy,) = granted["AdministerCluster"].conditions["ArnEquals"].values()
        assert policy.endswith("cluster-access-policy/AmazonEKSClusterAdminPolicy")
        entry = "arn:<AWS::Partition>:eks:<AWS::Region>:<AWS::AccountId>:access-entry"
        assert set(granted["LeaveCluster"].resources) == {
            f"{entry}/{cluster}/role/<AWS::AccountId>/{path}<{role}>/*" for path in ("", "platform/")
        }


def test_install_makes_entries_of_node_roles_alone_and_deletes_tagged_ones_alone(full: Template) -> None:
    granted = _rights(full, "two")
    role = "arn:<AWS::Partition>:iam::<AWS::AccountId>:role/"
    (second,) = granted["AdmitNodes"].resources
    assert second.endswith(":cluster/two")
    assert granted["AdmitNodes"].conditions == {
        "ArnEquals": {"eks:principalArn": [f"{role}{name}" for name in ("nodes/two-a", "two-b", "two-windows")]},
        "StringEquals": {"eks:accessEntryType": ["EC2_LINUX", "EC2_WINDOWS"]},
    }
    assert granted["DropNodeEntries"].conditions == {"StringLike": {"aws:ResourceTag/spotwright.dev/installers": "*"}}
    for cluster, names in {
        "one": ("KarpenterNodeRole-one",),
        "two": ("nodes/two-a", "two-a", "two-b", "two-windows"),
    }.items():
        tagging = _rights(full, cluster)["TagNodeEntries"]
        assert tagging.conditions["ForAllValues:StringEquals"] == {"aws:TagKeys": ["spotwright.dev/installers"]}
        assert {resource.split(":access-entry/")[1] for resource in tagging.resources} == {
            f"{cluster}/role/<AWS::AccountId>/{name}/*" for name in names
        }


def test_install_keeps_its_rights_in_a_cluster_until_the_cluster_has_left(full: Template) -> None:
    """CloudFormation deletes what needs something before that; nothing else of the stack speaks of the cluster."""
    for cluster, other in (("one", "two"), ("two", "one")):
        (rights,) = (id for id in full.of("AWS::IAM::ManagedPolicy") if id.startswith(f"InstallRights{cluster}"))
        assert f"/{other}" not in str(full.of("AWS::IAM::ManagedPolicy")[rights])
        for kind in ("Install", "NodesLeft"):
            (resource,) = (
                each
                for each in full.resources.values()
                if each["Type"] == f"Custom::Spotwright{kind}" and each["Properties"]["Cluster"] == cluster
            )
            assert rights in _needs(full, resource)


def _needs(template: Template, resource: Resource) -> set[str]:
    """Whatever a resource depends on by name, and what that does."""
    needed: set[str] = set()
    ahead = [*resource["DependsOn"]]
    while ahead:
        if (name := ahead.pop()) not in needed:
            needed.add(name)
            ahead += template.resources[name].get("DependsOn", [])
    return needed


def test_only_the_installer_may_delete_bodies_and_only_if_the_context_says_so(full: Template, plain: Template) -> None:
    def deleting(template: Template) -> set[str]:
        return {n for n in MAY if "s3:DeleteObject" in _actions(template.statements(template.role_id(n)))}

    assert deleting(plain) == set()
    assert deleting(full) == {"install"}


@pytest.mark.parametrize("which", ["plain", "full"])
def test_no_action_is_a_wildcard(which: str, request: pytest.FixtureRequest) -> None:
    template: Template = request.getfixturevalue(which)
    for role in template.of("AWS::IAM::Role"):
        assert not [action for action in _actions(template.statements(role)) if "*" in action]
    assert not any("ManagedPolicyArns" in role for role in template.of("AWS::IAM::Role").values())


def test_everything_granted_on_every_resource_is_known(full: Template) -> None:
    """Calls that AWS authorises without naming a resource; each has its reason in the code."""
    everywhere = {
        statement.sid
        for role in full.of("AWS::IAM::Role")
        for statement in full.statements(role)
        if "*" in statement.resources
    }
    described = {"SeeInstances", "SeeInstanceStatus", "SeeChoices", "SeeOffers", "SeeTemplates", "SeeTemplateVersions"}
    assert everywhere == described | {
        "SeePrices",
        "SeeZonalShifts",
        "ListProfiles",
        "NameClusters",
        "NetworkInterfaces",
    }


def test_policies_fit_and_sids_are_sound(full: Template) -> None:
    """Inline policies of a role: 10,240 characters, another one 6,144; Sids: letters and digits, once per policy."""
    for kind, characters in {"AWS::IAM::Policy": 10_240, "AWS::IAM::ManagedPolicy": 6_144}.items():
        for policy in full.of(kind).values():
            granted = statements(policy["PolicyDocument"])
            assert len({statement.sid for statement in granted}) == len(granted)
            assert all(re.fullmatch(r"[A-Za-z0-9]+", statement.sid) for statement in granted)
            assert len(json.dumps(policy["PolicyDocument"], separators=(",", ":"))) < characters


def _with_node_roles(number: int, role_path: str) -> Template:
    """One cluster with this many node roles; all names are long."""
    names = [f"{each:02}-{'r' * 29}/{'n' * 31}" for each in range(number)]
    named = conftest.cluster("c" * 60, nodeRoles=names)
    return conftest.synthesise({"cell": "production", "rolePath": role_path, "clusters": [named]})


@pytest.mark.parametrize(("role_path", "most"), [("/platform/", 5), (f"/{'p' * 510}/", 2)])
def test_what_install_may_do_for_a_cluster_fits_with_as_many_node_roles_as_are_allowed(
    role_path: str, most: int
) -> None:
    """References as long as what AWS makes of them; one more role is refused."""
    with pytest.raises(ConfigError, match=r"nodeRoles: got .* fit into a policy"):
        _with_node_roles(most + 1, role_path)
    template = _with_node_roles(most, role_path)
    (policy,) = (each for id, each in template.of("AWS::IAM::ManagedPolicy").items() if id.startswith("InstallRights"))
    text = json.dumps(policy["PolicyDocument"], separators=(",", ":"))
    role = template.role_id("install")
    for reference, value in {
        "<AWS::Partition>": "aws-us-gov",
        "<AWS::Region>": "ap-northeast-2",
        "<AWS::AccountId>": "1" * 12,
        f"<{role}.Arn>": f"arn:aws-us-gov:iam::111111111111:role{role_path}{'i' * 64}",
        f"<{role}>": "i" * 64,
    }.items():
        text = text.replace(reference, value)
    assert "<" not in text
    assert 5000 < len(text) < 6144


@pytest.mark.parametrize("service", ["cloudformation", "ec2", "eks", "iam", "pricing", "sqs", "ssm", "sts"])
def test_every_granted_action_is_one_that_aws_has(full: Template, service: str) -> None:
    operations = set(botocore.session.get_session().get_service_model(service).operation_names)
    permissions_without_call = {"iam:PassRole", "sts:TagSession"}
    for role in full.of("AWS::IAM::Role"):
        for action in _actions(full.statements(role)) - permissions_without_call:
            if action.startswith(f"{service}:"):
                assert action.split(":")[1] in operations


#: What AWS checks besides the call itself.
IMPLIED: dict[str, set[str]] = {
    "cloudformation": set(),
    "ec2": set(),
    "iam": {"PassRole", "TagInstanceProfile"},  # AddRoleToInstanceProfile, CreateInstanceProfile
    "eks": set(),
    "dynamodb": set(),
    "ssm": set(),
    "pricing": set(),
}


#: Calls that IAM knows by the actions of which they are made.
COMPOSED: dict[str, set[str]] = {"dynamodb": {"TransactWriteItems"}}  # of PutItem


@pytest.mark.parametrize("service", IMPLIED)
def test_what_is_granted_is_what_the_layer_can_call(plain: Template, service: str) -> None:
    granted = {action for role in plain.of("AWS::IAM::Role") for action in _actions(plain.statements(role))}
    mine = {action.split(":")[1] for action in granted if action.startswith(f"{service}:")}
    assert mine - IMPLIED[service] == set(CALLS[service]) - COMPOSED.get(service, set())


def test_the_preflight_knows_every_action_that_a_permissions_boundary_must_allow(
    plain: Template, full: Template
) -> None:
    target = Target("dev", "eu-west-1")
    with_vpc_and_key = Target("dev", "eu-west-1", vpc_id="vpc-1", kms_key_arn=KEY)
    for template, deployed in ((plain, target), (full, with_vpc_and_key)):
        granted = {
            action
            for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
            for policy in template.of(kind).values()
            for action in _actions(statements(policy["PolicyDocument"]))
        }
        assert granted - {*OF_OPTIONS} == {*needed_actions(deployed)}
