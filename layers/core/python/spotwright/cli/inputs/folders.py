"""Which files of a folder are manifests; what is rendered first is named with the command that renders it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from spotwright.cli import InputError
from spotwright.cli.inputs.documents import Document, Documents, parse_text, read_text

_ENDINGS: Final = (".yaml", ".yml", ".json")
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_CHART: Final = "Chart.yaml"
# Lists of a kustomization that name files which are no manifests of their own.
_NOT_RESOURCES: Final = ("patches", "patchesStrategicMerge", "patchesJson6902", "configurations", "transformers")
_API_VERSION: Final = re.compile(r"^apiVersion:[ \t]*['\"]?([\w./-]+)", re.MULTILINE)


def read_folder(folder: Path) -> Documents:
    """The objects of all manifests in a folder and its subfolders; other files are skipped, which a note says.

    Raises InputError for all manifests that cannot be read.
    """
    charts = sorted({file.parent for file in _visible(folder) if file.name == _CHART})
    kustomizations = sorted({file.parent for file in _visible(folder) if file.name in _KUSTOMIZATIONS})
    left_out = {path for kustomization in kustomizations for path in _patches(kustomization)}
    objects: list[Document] = []
    errors: list[str] = []
    skipped = 0
    for file in _visible(folder):
        if file.suffix not in _ENDINGS or any(chart in file.parents for chart in charts):
            continue
        if file.name in _KUSTOMIZATIONS or file.resolve() in left_out:
            continue
        try:
            found = _read_file(file)
        except InputError as error:
            errors.append(str(error))
            continue
        objects += found
        skipped += not found
    if errors:
        raise InputError("\n".join(errors))
    return Documents(tuple(objects), notes=tuple(_notes(folder, charts, kustomizations, skipped)))


def rendering_command(file: Path) -> str:
    """How manifests are rendered from this file, "" if it is not what they are rendered from."""
    if file.name in _KUSTOMIZATIONS:
        return f"kubectl kustomize {file.parent} | spotwright plan -"
    chart = next((parent for parent in (file.parent, *file.parent.parents[:1]) if (parent / _CHART).exists()), None)
    if chart is not None and (file.name == _CHART or file.name.startswith("values") or file.parent.name == "templates"):
        return f"helm template {chart} | spotwright plan -"
    return ""


def _notes(folder: Path, charts: list[Path], kustomizations: list[Path], skipped: int) -> Iterator[str]:
    for chart in charts:
        if not any(other in chart.parents for other in charts):
            yield f"{chart} is a Helm chart, which is not read: helm template {chart} | spotwright plan -"
    for kustomization in kustomizations:
        yield (
            f"{kustomization} is a kustomization, whose files are read without what it changes in them:"
            f" kubectl kustomize {kustomization} | spotwright plan -"
        )
    if skipped:
        files = "1 file that is not a manifest is" if skipped == 1 else f"{skipped} files that are not manifests are"
        yield f"{folder}: {files} not read"


def _visible(folder: Path) -> Iterator[Path]:
    """All files but those in hidden folders, such as .git and .github; sorted."""
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in inner.parts):
            yield file


def _read_file(file: Path) -> tuple[Document, ...]:
    """The objects of a file; empty for a file that is not a manifest."""
    try:
        text = read_text(file)
    except InputError:
        if file.stat().st_size and b"apiVersion:" not in file.read_bytes():
            return ()
        raise
    if "kind" not in text:
        return ()
    try:
        return parse_text(str(file), text).objects
    except InputError:
        # A template, values, or what another program reads.
        if "{{" in text or not _looks_like_an_object(text) or _has_no_object(text):
            return ()
        raise


def _looks_like_an_object(text: str) -> bool:
    """Whether a text that cannot be read seems to be a manifest of a kind that is planned for."""
    from spotwright.cli.inputs.validation.kinds import is_known_group

    return "kind:" in text and any(is_known_group(version) for version in _API_VERSION.findall(text))


def _has_no_object(text: str) -> bool:
    """Whether no document of the text has both apiVersion and metadata, as configuration files of programs."""
    from spotwright.cli.inputs.yaml_text import YamlError, read_yaml

    try:
        contents = [document.value for document in read_yaml(text)]
    except YamlError:
        return False
    return not any(
        isinstance(content, dict) and "apiVersion" in content and "metadata" in content for content in contents
    )


def _patches(kustomization: Path) -> Iterator[Path]:
    """Files that a kustomization reads as patches."""
    from spotwright.cli.inputs.yaml_text import YamlError, read_yaml

    file = next(kustomization / name for name in _KUSTOMIZATIONS if (kustomization / name).exists())
    try:
        content: Any = next((document.value for document in read_yaml(read_text(file))), None)
    except (YamlError, InputError):
        return
    for name in _NOT_RESOURCES:
        entries = content.get(name) if isinstance(content, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            path = entry.get("path") if isinstance(entry, dict) else entry
            if isinstance(path, str) and "\n" not in path:
                yield (kustomization / path).resolve()
