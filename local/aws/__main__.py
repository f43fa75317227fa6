"""`python -m local.aws --port P --directory DIR`: the local AWS, until SIGTERM or SIGINT."""

import argparse
import signal
import threading
from pathlib import Path

from local.aws import moto_setup
from local.aws.strictness import Strictness, lenient_by_default, rules


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local.aws", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port, see DIRECTORY/aws.json")
    parser.add_argument("--directory", type=Path, required=True, help="logs and working files")
    parser.add_argument("--region", default="ap-northeast-2")
    parser.add_argument("--cluster", default="dev-eks-cluster")
    parser.add_argument("--lenient", nargs="*", default=lenient_by_default(), metavar="RULE", help="see strictness.py")
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    arguments.directory.mkdir(parents=True, exist_ok=True)
    moto_setup.prepare(arguments.region)
    # Imported now, because it imports moto.
    from local.aws.server import serve

    serve(
        arguments.directory,
        port=arguments.port,
        region=arguments.region,
        cluster=arguments.cluster,
        strictness=Strictness(rules(arguments.lenient)),
        stop=stop,
    )


if __name__ == "__main__":
    main()
