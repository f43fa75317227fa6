"""What the account holds before anybody deploys."""

from tests.local.aws.conftest import ACCOUNT, CLUSTER, REGION, Aws


def test_the_network_carries_the_usual_tags(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    shared = [{"Name": f"tag:kubernetes.io/cluster/{CLUSTER}", "Values": ["shared"]}]
    found = ec2.describe_subnets(Filters=shared)["Subnets"]
    assert [subnet["AvailabilityZone"] for subnet in found] == [f"{REGION}{letter}" for letter in "abc"]
    assert [subnet["AvailabilityZoneId"] for subnet in found] == ["apne2-az1", "apne2-az2", "apne2-az3"]
    discovery = [{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}]
    (group,) = ec2.describe_security_groups(Filters=discovery)["SecurityGroups"]
    assert group["VpcId"] == found[0]["VpcId"]


def test_node_roles_trust_ec2_and_have_the_managed_policies(aws: Aws) -> None:
    iam = aws.client("iam")
    for name in (f"KarpenterNodeRole-{CLUSTER}", f"karpenterNodeRole-{CLUSTER}", "dev-eks-node-group-role"):
        role = iam.get_role(RoleName=name)["Role"]
        assert role["Arn"] == f"arn:aws:iam::{ACCOUNT}:role/{name}"
        statement = role["AssumeRolePolicyDocument"]["Statement"][0]
        assert statement["Principal"] == {"Service": "ec2.amazonaws.com"}
        attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        assert "AmazonEKSWorkerNodePolicy" in {policy["PolicyName"] for policy in attached}
