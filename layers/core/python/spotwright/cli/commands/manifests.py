"""`spotwright manifests`: what the installation applies to a cluster, as YAML to apply in another way."""

import argparse
import os
import sys

from spotwright.cli import InputError


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("manifests", help="print what is installed into a cluster")
    parser.add_argument("--forwarder-image", metavar="IMAGE", help="print the forwarder too, with this image")
    parser.add_argument("--cluster", metavar="NAME", help="the cluster that the forwarder is for")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    stack_help = "the stack whose table and queues it uses (default: SPOTWRIGHT_STACK, %(default)s)"
    parser.add_argument("--stack", default=stack, help=stack_help)
    parser.add_argument("--region", help="where the stack is (default: as the AWS SDK finds it)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from spotwright import manifests
    from spotwright.cli.text.yaml_documents import write_yaml

    if arguments.forwarder_image and not arguments.cluster:
        raise InputError("--forwarder-image needs --cluster: the forwarder is for one cluster")
    documents = [*manifests.definitions(), *manifests.rbac(), *manifests.flow_control()]
    if arguments.forwarder_image:
        documents += manifests.forwarder(arguments.forwarder_image, _environment(arguments))
    else:
        print("# without the forwarder: give --cluster and --forwarder-image for it", file=sys.stderr)
    write_yaml(documents, sys.stdout)
    return 0


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The forwarder's environment, from the outputs of the stack."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.errors import ApiError

    try:
        cloudformation = clients.client("cloudformation", region=arguments.region)
        outputs = cluster_outputs(cloudformation, arguments.stack, arguments.cluster)
    except ApiError as failure:
        raise InputError(f"--stack {arguments.stack}: {failure}") from None
    return {
        "CLUSTER_NAME": arguments.cluster,
        "AWS_REGION": cloudformation.meta.region_name,
        "SPOTWRIGHT_TABLE": outputs["TableName"],
        "SPOTWRIGHT_PROVISION_QUEUE_URL": outputs["ProvisionQueueUrl"],
        "SPOTWRIGHT_LIFECYCLE_QUEUE_URL": outputs["LifecycleQueueUrl"],
        "SPOTWRIGHT_CATALOG_QUEUE_URL": outputs["CatalogQueueUrl"],
    }
