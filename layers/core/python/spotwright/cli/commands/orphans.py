"""`spotwright orphans`: instances of a cluster that nothing of it uses, and a person's word that they may go."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotwright.cli import InputError
from spotwright.model.plurals import counted

if TYPE_CHECKING:
    from spotwright.lifecycle.orphans import Orphans
    from spotwright.model.ec2.fleet import Instance
    from spotwright.workflows.ports.ec2 import Ec2Port

_DESCRIPTION = """\
List the instances that carry the tags of a cluster and that neither a NodeClaim nor a launch has. Few are terminated
by themselves; more than three, and more than a tenth of all, only after you say so here. Saying it twice changes
nothing."""
_EPILOG = """\
examples:
  spotwright orphans --cluster main                          which are there, and what becomes of them?
  spotwright orphans --cluster main --terminate i-0abc…      these may go
  spotwright orphans --cluster main --terminate-all          all that are there now may go
"""


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "orphans",
        help="list instances that nothing of a cluster uses, and let them go",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cluster", required=True, metavar="NAME", help="must be the kubeconfig's cluster")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--terminate", nargs="+", default=[], metavar="ID", help="these orphans may be terminated")
    what.add_argument("--terminate-all", action="store_true", help="all orphans that are there now may be terminated")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    parser.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.add_argument("--region", help="where the stack is (default: as the AWS SDK finds it)")
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG, or ~/.kube/config")
    parser.add_argument("--context", help="a context of the kubeconfig (default: its current one)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0: listed, or acknowledged; 1: AWS, the stack or the cluster cannot be reached. Raises InputError."""
    from spotwright.errors import ApiError

    try:
        ec2, total, orphans = gather(arguments)
        everyone = (*orphans.to_terminate, *orphans.refused)
        chosen = everyone if arguments.terminate_all else _chosen(arguments, everyone)
        if arguments.terminate_all or arguments.terminate:
            return _acknowledge(ec2, chosen)
    except ApiError as failure:
        print(f"spotwright orphans: {failure}", file=sys.stderr)
        return 1
    print("\n".join(_listing(arguments.cluster, total, orphans)))
    return 0


def gather(arguments: argparse.Namespace) -> "tuple[Ec2Port, int, Orphans]":
    """EC2, the number of the cluster's instances, and its orphans; what may name an instance is read after it."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.ec2.instances import Ec2
    from spotwright.adapters.kubernetes.cluster import KubernetesCluster
    from spotwright.adapters.kubernetes.transport import Transport
    from spotwright.cli.inputs.same_cluster import configuration_of
    from spotwright.workflows.sweep.full import orphans_of

    region, name = arguments.region, arguments.cluster
    outputs = cluster_outputs(clients.client("cloudformation", region=region), arguments.stack, name)
    cluster = KubernetesCluster(name, Transport.from_configuration(configuration_of(arguments)))
    ec2 = Ec2(clients.client("ec2", region=region), cluster=name)
    state = DynamoState(clients.client("dynamodb", region=region), table=outputs["TableName"], cluster=name)
    instances = ec2.instances_of_cluster()
    orphans = orphans_of(instances, state.launches(), cluster.nodeclaims(), now=datetime.now(UTC))
    return ec2, len(instances), orphans


def _chosen(arguments: argparse.Namespace, orphans: "Sequence[Instance]") -> "tuple[Instance, ...]":
    """The orphans that are named; raises InputError for an instance that is none, before any is acknowledged."""
    by_id = {orphan.id: orphan for orphan in orphans}
    for id in arguments.terminate:
        if id not in by_id:
            raise InputError(
                f"{id} is no orphan of cluster {arguments.cluster}: it does not run, it is younger than a minute, or a"
                f" NodeClaim or a launch has it; spotwright orphans --cluster {arguments.cluster} lists the orphans"
            )
    return tuple(by_id[id] for id in dict.fromkeys(arguments.terminate))


def _acknowledge(ec2: "Ec2Port", orphans: "Sequence[Instance]") -> int:
    from spotwright.lifecycle.orphans import ACKNOWLEDGED, is_acknowledged
    from spotwright.model import labels

    for orphan in orphans:
        if not is_acknowledged(orphan):
            ec2.tag(orphan.id, {labels.ORPHAN_TAG: ACKNOWLEDGED})
        print(f"{orphan.id}: {'was acknowledged before' if is_acknowledged(orphan) else 'acknowledged'}")
    what = counted(len(orphans), "instance")
    print(
        f"{what} may go: the next full sweep, within ten minutes, terminates what nothing uses then."
        if orphans
        else "There are no orphans."
    )
    return 0


def _listing(cluster: str, total: int, orphans: "Orphans") -> list[str]:
    from spotwright.lifecycle.orphans import is_acknowledged
    from spotwright.model import labels

    everyone = sorted((*orphans.to_terminate, *orphans.refused), key=lambda orphan: orphan.id)
    if not everyone:
        return [f"No instance of {cluster} is an orphan: NodeClaims and launches name all {total} of them."]
    lines = [f"{len(everyone)} of {counted(total, 'instance')} of {cluster}: no NodeClaim and no launch has them."]
    for orphan in everyone:
        launched = f"{orphan.launch_time:%Y-%m-%d %H:%M} UTC" if orphan.launch_time else ""
        lines.append(
            f"  {orphan.id}  {orphan.instance_type}  {orphan.capacity_type}  {orphan.zone}  {orphan.state}"
            f"  NodePool {orphan.tags.get(labels.NODEPOOL, '')}  launched {launched}"
            + ("  acknowledged" if is_acknowledged(orphan) else "")
        )
    if orphans.to_terminate:
        lines.append(f"{counted(len(orphans.to_terminate), 'instance')} will be terminated within ten minutes.")
    if orphans.refused:
        lines += [
            f"{counted(len(orphans.refused), 'instance')} will not: so many at once may be a mistake.",
            f"They may go:    spotwright orphans --cluster {cluster} --terminate ID … (or --terminate-all)",
            f"To keep one:    aws ec2 delete-tags --resources ID --tags Key={labels.NODEPOOL}",
        ]
    return lines
