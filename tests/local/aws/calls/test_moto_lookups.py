"""What is looked up once is what moto finds each time."""

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

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
