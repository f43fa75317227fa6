"""`spotwright resume`: ends a pause and closes the breaker."""

import argparse

from spotwright.cli.commands import pause


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("resume", help="end a pause, and close the breaker that stopped disruption")
    pause.add_cluster_options(parser)
    parser.set_defaults(run=pause.run, verb="resume")
