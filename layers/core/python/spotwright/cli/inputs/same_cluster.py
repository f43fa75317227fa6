"""The kubeconfig of a command that acts on a cluster: it must lead to the cluster that ``--cluster`` names."""

import argparse
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws import clients
from spotwright.adapters.aws.errors import translate_errors
from spotwright.adapters.kubernetes.connection import kubeconfig_configuration
from spotwright.cli import InputError

if TYPE_CHECKING:
    from kubernetes.client import Configuration


def configuration_of(arguments: argparse.Namespace) -> "Configuration":
    """By ``cluster``, ``region``, ``kubeconfig``, ``context``. Raises InputError unless EKS has the same endpoint."""
    eks: Any = clients.client("eks", region=arguments.region)
    with translate_errors(f"DescribeCluster {arguments.cluster}"):
        endpoint = eks.describe_cluster(name=arguments.cluster)["cluster"]["endpoint"]
    configuration = kubeconfig_configuration(arguments.kubeconfig, arguments.context)
    if configuration.host.rstrip("/").lower() != endpoint.rstrip("/").lower():
        raise InputError(f"the kubeconfig leads to {configuration.host}, but {arguments.cluster} is {endpoint}")
    return configuration
