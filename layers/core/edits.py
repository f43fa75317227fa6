"""What the layer's copies of libraries do differently, so that a start does not pay for what no function does.

Every entry names its reason; `tests/layer` proves that what is left works as it did. Paths are relative to the layer's
`python/` folder.
"""

from collections.abc import Collection
from pathlib import Path

#: Modules that are imported at every start for what no function does, and what takes their place.
REPLACED = {
    # Docstrings of generated methods, for people at a prompt: a writer of reStructuredText and an HTML parser.
    "botocore/docs/__init__.py": "",
    "botocore/docs/docstring.py": """\
class _Docstring(str):
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __init__(self, *args, **kwargs):
        super().__init__()


ClientMethodDocstring = PaginatorDocstring = WaiterDocstring = _Docstring
""",
    # The switch to HTTP/2, which nobody turns; it reads the metadata of distributions.
    "urllib3/http2/__init__.py": "",
    # A reader of dates in any wording, for which it needs calendars, locales and relative times. AWS writes ISO 8601;
    # whatever else comes is read as before. Who asks for the local zone asks for an instant, which UTC says as well.
    "dateutil/parser/__init__.py": """\
from datetime import datetime


def parse(timestr, *args, **kwargs):
    if isinstance(timestr, str) and timestr[10:11] == "T":
        try:
            return datetime.fromisoformat(timestr)
        except ValueError:
            pass
    return __getattr__("parse")(timestr, *args, **kwargs)


def __getattr__(name):
    import dateutil.parser._parser as real

    return getattr(real, name)
""",
    "dateutil/tz/__init__.py": """\
from datetime import UTC


def tzutc():
    return UTC


tzlocal = tzutc


def __getattr__(name):
    import dateutil.tz.tz as real

    return getattr(real, name)
""",
    # What later Pythons have; ours is later.
    "typing_extensions.py": """\
from collections.abc import Buffer
from typing import *
from typing import LiteralString, Never, NotRequired, ParamSpec, Required, Self, Unpack, get_type_hints, override
from warnings import deprecated
""",
}

# Python's own look for proxies comes with a client for HTTP and FTP, temporary files and three ways to compress.
_PROXIES = """
def _is_proxied():
    return any(name.lower().endswith("_proxy") for name in os.environ)


def getproxies():
    if not _is_proxied():
        return {}
    import urllib.request

    return urllib.request.getproxies()


def proxy_bypass(host):
    if not _is_proxied():
        return False
    import urllib.request

    return urllib.request.proxy_bypass(host)


"""

# Names of months and days in every language, imported to count seconds.
_CALENDAR = """
class calendar:
    @staticmethod
    def timegm(parts):
        import calendar

        return calendar.timegm(parts)


"""

# For credentials that another program prints.
_SUBPROCESS = """
class subprocess:
    PIPE = -1

    @staticmethod
    def Popen(*args, **kwargs):
        import subprocess

        return subprocess.Popen(*args, **kwargs)


"""

# Nine spellings of an IPv6 address make up most of what both libraries compile at a start, five times. What these
# letters let through beyond them is no address either, and says so when it is connected to.
_IPV6 = '"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"'

#: Module → (text, what stands there instead); each text must be there exactly once.
CHANGED = {
    "urllib3/util/url.py": (
        ('_IPV6_PAT = "(?:" + "|".join([x % _subs for x in _variations]) + ")"', f"_IPV6_PAT = {_IPV6}"),
    ),
    "botocore/compat.py": (
        ('IPV6_PAT = "(?:" + "|".join([x % _subs for x in _variations]) + ")"', f"IPV6_PAT = {_IPV6}"),
    ),
    "botocore/utils.py": (
        ("from urllib.request import getproxies, proxy_bypass\n", _PROXIES),
        ("import tempfile\n", ""),
        ("        temp_fd, temp_path = tempfile", "        import tempfile\n\n        temp_fd, temp_path = tempfile"),
    ),
    "botocore/auth.py": (("import calendar\n", _CALENDAR),),
    "botocore/serialize.py": (("import calendar\n", _CALENDAR),),
    "botocore/credentials.py": (("import subprocess\n", _SUBPROCESS),),
    # A file in somebody's home.
    "botocore/configloader.py": (
        ("import configparser\n", ""),
        ("        cp = configparser", "        import configparser\n\n        cp = configparser"),
    ),
    "kubernetes/client/configuration.py": (
        # Only to count processors.
        ("import multiprocessing\n", "import os as multiprocessing\n"),
        ("from urllib.request import getproxies\n", "from botocore.utils import getproxies\n"),
    ),
}


def edit(python: Path, services: Collection[str]) -> None:
    """Edits an installed tree, which serves these AWS services, in place.

    Raises FileNotFoundError or ValueError when something listed here is not there any more: a dependency has changed,
    and somebody should look what its start costs now.
    """
    missing = [name for name in (*REPLACED, *CHANGED) if not (python / name).exists()]
    if missing:
        raise FileNotFoundError(f"layer: no {', '.join(missing)} (layers/core/edits.py)")
    for name, text in REPLACED.items():
        (python / name).write_text(text)
    for name, changes in CHANGED.items():
        for before, after in changes:
            _change(python / name, before, after)
    _events(python / "botocore", services)


def _change(module: Path, before: str, after: str) -> None:
    text = module.read_text()
    if text.count(before) != 1:
        raise ValueError(f"layer: {module.name} has {before!r} {text.count(before)} times (layers/core/edits.py)")
    module.write_text(text.replace(before, after))


def _events(botocore: Path, services: Collection[str]) -> None:
    """A session registers handlers for every service and for documentation; here for the services that are called."""
    served = f"frozenset({sorted(services)!r})"
    _append(botocore / "utils.py", f"EVENT_ALIASES = {{a: b for a, b in EVENT_ALIASES.items() if b in {served}}}")
    wanted = "not event.startswith('docs.') and (not part or part[0] in _SERVED)"
    _append(
        botocore / "handlers.py",
        f"_SERVED = {served} | {{'*'}}\n"
        f"BUILTIN_HANDLERS = [one for one in BUILTIN_HANDLERS for event in one[:1] for part in [event.split('.')[1:]]\n"
        f"    if {wanted}]",
    )


def _append(module: Path, lines: str) -> None:
    module.write_text(f"{module.read_text()}\n\n{lines}\n")
