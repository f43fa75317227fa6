"""The deployed layer: what is uploaded and what Lambda unpacks."""

from collections.abc import Iterator

from local.stack import Stack


def layer_sizes(stack: Stack) -> Iterator[tuple[str, str, str]]:
    """Of the layer as the functions have it, in MB of 10^6 bytes."""
    for folder in sorted((stack.directory / "functions" / "layers").iterdir()):
        unpacked = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        yield "layer, unpacked", f"{unpacked / 1e6:.1f} MB", "≤ 100, ≤ 60 if it can be"
