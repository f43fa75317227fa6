"""The control API."""

from tests.local.aws.conftest import Aws


def test_the_control_api_says_what_is_wrong(aws: Aws) -> None:
    assert aws.control("GET", "/_local/nothing")["status"] == 404
    assert aws.control("POST", "/_local/interrupt", {})["status"] == 400
    assert aws.control("GET", "/_local/health")["cluster"] == "dev-eks-cluster"
