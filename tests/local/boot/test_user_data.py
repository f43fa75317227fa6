"""Several parts become one NodeConfig."""

import base64
import gzip

import pytest
import yaml

from local.boot.user_data import BootError, parse_al2023
from tests.local.boot.conftest import mime, node_config, user_data


def test_later_parts_win_and_objects_merge() -> None:
    """Kubelet settings merge key by key; lists are replaced as a whole."""
    first = node_config()
    first["spec"]["kubelet"]["config"] |= {"maxPods": 10, "podsPerCore": 4}
    first["spec"]["cluster"]["name"] = "other"
    config = parse_al2023(user_data(first, node_config()))
    assert config.cluster_name == "dev"
    assert config.kubelet["maxPods"] == 29
    assert config.kubelet["podsPerCore"] == 4


def test_an_empty_value_of_a_later_part_does_not_win() -> None:
    second = node_config()
    second["spec"]["cluster"]["name"] = ""
    assert parse_al2023(user_data(node_config(), second)).cluster_name == "dev"


def test_kubelet_flags_of_all_parts_add_up_in_order() -> None:
    first, second = node_config(), node_config()
    first["spec"]["kubelet"]["flags"] = ["--v=2"]
    second["spec"]["kubelet"]["flags"] = ["--node-labels=a=b"]
    assert parse_al2023(user_data(first, second)).flags == ("--v=2", "--node-labels=a=b")


def test_other_parts_are_left_to_cloud_init() -> None:
    document = yaml.safe_dump(node_config())
    parts = ("text/x-shellscript; charset=us-ascii", "#!/bin/bash\ntrue"), ("application/node.eks.aws", document)
    assert parse_al2023(mime(*parts)).cluster_name == "dev"


def test_a_bare_node_config_and_a_compressed_one_are_read() -> None:
    text = yaml.safe_dump(node_config()).encode()
    for data in (text, gzip.compress(text), base64.b64encode(text)):
        assert parse_al2023(base64.b64encode(data).decode()).cluster_name == "dev"


def test_a_kubelet_config_that_is_a_list_is_refused() -> None:
    document = node_config()
    document["spec"]["kubelet"]["config"] = ["maxPods"]
    with pytest.raises(BootError, match="not dict"):
        parse_al2023(user_data(document))
