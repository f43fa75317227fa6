"""The type checker reads of aws_cdk exactly what is used, so what is used must be in its list."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_cdk_module_in_use_is_type_checked() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    read = {name for override in overrides if override.get("follow_imports") == "normal" for name in override["module"]}
    files = [path for folder in ("infra", "local", "bench", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert {name for path in files for name in cdk_modules(path)} == read


def cdk_modules(path: Path) -> Iterator[str]:
    """Modules of aws_cdk that a file imports, or imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] == "aws_cdk")
            case ast.ImportFrom(module="aws_cdk", names=names):
                yield "aws_cdk"
                yield from (f"aws_cdk.{alias.name}" for alias in names if alias.name[0].islower())
            case ast.ImportFrom(module=str(module)) if module.startswith("aws_cdk."):
                yield module
            case _:
                pass
