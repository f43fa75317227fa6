"""The first code of a function process: sees to isolation, then hands over to awslambdaric.

Started as `python -I -S bootstrap.py TASK OPT RUNTIME HANDLER`, so that neither site-packages
nor the parent's PYTHON* variables reach the function: a dependency that is missing in the package or
the layer is missing here. The folders count as read-only, as in Lambda: no bytecode is written.
"""

import os
import sys
import threading


def leave_with_parent() -> None:
    """Standard input is a pipe that the parent holds open: its end is the parent's end."""
    while os.read(0, 64):
        pass
    os._exit(70)


def module_path(task: str, opt: str, runtime: str) -> list[str]:
    """Lambda's order: the function, the layers, the standard library, the runtime."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [task, f"{opt}/python/lib/{version}/site-packages", f"{opt}/python", *sys.path, runtime]


def main(task: str, opt: str, runtime: str, handler: str) -> None:
    threading.Thread(target=leave_with_parent, daemon=True).start()
    sys.path[:] = module_path(task, opt, runtime)
    sys.dont_write_bytecode = True
    os.chdir(task)
    from awslambdaric.__main__ import main as serve

    sys.argv[:] = ["awslambdaric", handler]
    serve(sys.argv)


if __name__ == "__main__":
    main(*sys.argv[1:5])
