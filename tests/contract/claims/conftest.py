import pytest

from tests.conftest import fake_store
from wainwright.batching.claims import ClaimRecords


@pytest.fixture(params=["fake", "real"])
def store(request):
    if request.param == "fake":
        return fake_store()
    return request.getfixturevalue("make_real_store")()


@pytest.fixture
def records(store):
    return ClaimRecords(store)
