"""What is looked up once is what moto finds each time."""

import pytest
from moto.core.base_backend import BackendDict
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs.models import SQSBackend

from local.aws.calls import moto_lookups

HOSTS = [None, "moto_api", "dynamodb", "sqs.ap-northeast-2.amazonaws.com", "s3.us-east-1.amazonaws.com", "nobody"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_means_the_same_service_at_every_look(host: str | None) -> None:
    quick = moto_lookups.Dispatcher(create_backend_app)
    found = DomainDispatcherApplication(create_backend_app).get_backend_for_host(host)
    assert [quick.get_backend_for_host(host), quick.get_backend_for_host(host)] == [found, found]


def test_a_receipt_handle_looks_as_motos_and_is_never_the_same() -> None:
    handles = {moto_lookups.receipt_handle() for _ in range(100)}
    assert len(handles) == 100
    assert all(len(handle) == 185 and handle.isalpha() and handle.islower() for handle in handles)


def test_an_account_has_one_backend() -> None:
    backends = BackendDict(SQSBackend, "sqs")
    made = moto_lookups.backend_of_account(backends, "123456789012")
    assert moto_lookups.backend_of_account(backends, "123456789012") is made is backends["123456789012"]
    assert moto_lookups.backend_of_account(backends, "210987654321") is not made
