"""What moto works out anew for every call although it never changes, worked out once.

Which folders are its services and which of them a host means, which methods a class has, how a name looks with
underscores, and whether an account has a backend, under a lock of the whole process: of a PutItem these were a third of
its time.
"""

import functools
import random
import string
from typing import Any

import moto.backends
import moto.core.responses
import moto.core.utils
import moto.sqs.models
from moto.core.base_backend import BackendDict
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

# As moto's; each letter drawn alone takes ten times as long.
_HANDLE_LENGTH = 185
_make_backend: Any = BackendDict.__getitem__


class Dispatcher(DomainDispatcherApplication):
    """moto's dispatcher, which looks up once which service a host means: it compares 200 folders and patterns."""

    @functools.cache  # noqa: B019 there is a single dispatcher, as long as the process lives
    def get_backend_for_host(self, host: str | None) -> Any:
        return super().get_backend_for_host(host)


def backend_of_account(backends: Any, account: str) -> Any:
    """``backends[account]``, made on first use: nothing takes it away."""
    if dict.__contains__(backends, account):
        return dict.__getitem__(backends, account)
    return _make_backend(backends, account)


def receipt_handle() -> str:
    """Of a message that is received."""
    return "".join(random.choices(string.ascii_lowercase, k=_HANDLE_LENGTH))


def add(_emulator: object) -> None:
    """Every module has its own name for the functions that it imported."""
    underscored = functools.cache(moto.core.utils.camelcase_to_underscores)
    replacements: list[tuple[Any, str, Any]] = [
        (moto.core.responses, "camelcase_to_underscores", underscored),
        (moto.sqs.models, "camelcase_to_underscores", underscored),
        (moto.core.responses, "method_names_from_class", functools.cache(moto.core.utils.method_names_from_class)),
        (moto.sqs.models, "generate_receipt_handle", receipt_handle),
        (BackendDict, "__getitem__", backend_of_account),
    ]
    for module, name, replacement in replacements:
        setattr(module, name, replacement)
