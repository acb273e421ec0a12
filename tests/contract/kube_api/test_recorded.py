"""The embedded server answers as a real one was recorded to answer: defaults, forms, statuses, reasons."""

import json

import pytest

from tests.contract.kube_api.cluster import EMBEDDED_ONLY, Api
from tests.contract.kube_api.record import ANSWERS, ask, requests

pytestmark = EMBEDDED_ONLY  # where controllers run, they change what was recorded without them
RECORDED = json.loads(ANSWERS.read_text())


@pytest.fixture(scope="module")
def answers(kubeconfig):
    return ask(Api(kubeconfig), "recorded-here")


@pytest.mark.parametrize("number", range(len(RECORDED)), ids=lambda n: f"{n}-{requests()[n][0]}-{requests()[n][1]}")
def test_answer(answers, number):
    assert answers[number] == RECORDED[number]
