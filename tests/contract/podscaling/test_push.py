"""The push endpoint over HTTP, its stream read back."""

import asyncio
import io

import pytest
from aiohttp.test_utils import TestClient, TestServer

from workers.push import MOST_BYTES, make_application

ONE = "/v1/namespaces/shop/podautoscalers/web/load"


@pytest.fixture
def store(make_real_store):
    return make_real_store()


def ask(store, *requests, token=""):
    """Answers of requests (method, path, arguments)."""

    async def run():
        async with TestClient(TestServer(make_application(store, token))) as client:
            answers = []
            for method, path, arguments in requests:
                async with client.request(method, path, **arguments) as answer:
                    body = await answer.json() if answer.content_type == "application/json" else await answer.text()
                    answers.append((answer.status, body))
            return answers

    return asyncio.run(run())


def pushed(store):
    return [fields for _, fields in store.redis.xrange(store.keys.kpa_push)]


def test_one_report(store):
    answers = ask(store, ("POST", ONE, {"json": {"value": 3.5, "reporter": "web-7f", "at_ms": 1700000000000}}))
    assert answers == [(202, {"noted": 1})]
    assert pushed(store) == [{"pa": "shop/web", "value": "3.5", "reporter": "web-7f", "at_ms": "1700000000000"}]


def test_many_reports(store):
    body = [{"pa": "shop/a", "value": 1}, {"pa": "shop/b", "value": 2, "source": "other"}]
    assert ask(store, ("POST", "/v1/load", {"json": body})) == [(202, {"noted": 2})]
    assert [fields["pa"] for fields in pushed(store)] == ["shop/a", "shop/b"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "truncated"),
        (b'{"value": "1"}', "Expected `float`"),
        (b'{"value": -1}', "-1 is negative"),
        (b'{"value": 1e300}', "more than"),
        (b'{"value": 1, "vlaue": 2}', "unknown field `vlaue`"),
        (b'{"value": 1, "at_ms": -5}', "at_ms -5 is negative"),
        (b"\xff", "malformed"),
    ],
)
def test_a_bad_report_is_named_and_nothing_is_noted(store, body, why):
    ((status, answer),) = ask(store, ("POST", ONE, {"data": body}))
    assert status == 400
    assert why in answer["error"]
    assert pushed(store) == []


def test_one_bad_item_spoils_the_whole_list(store):
    body = [{"pa": "shop/a", "value": 1}, {"pa": "nowhere", "value": 1}]
    ((status, answer),) = ask(store, ("POST", "/v1/load", {"json": body}))
    assert (status, answer["error"]) == (400, "item 1: pa 'nowhere' is not namespace/name")
    assert pushed(store) == []


def test_a_body_that_is_too_large_is_refused(store):
    ((status, _),) = ask(store, ("POST", ONE, {"data": io.BytesIO(b"x" * (MOST_BYTES + 1))}))
    assert status == 413


def test_with_a_token_others_are_kept_out(store):
    good, bad = {"Authorization": "Bearer secret"}, {"Authorization": "Bearer guess"}
    answers = ask(
        store,
        ("POST", ONE, {"json": {"value": 1}}),
        ("POST", ONE, {"json": {"value": 1}, "headers": bad}),
        ("POST", ONE, {"json": {"value": 1}, "headers": good}),
        ("GET", "/healthz", {}),
        token="secret",
    )
    assert [status for status, _ in answers] == [401, 401, 202, 200]


def test_while_redis_is_away_it_says_so(own_redis_server):
    from wainwright.batching.store import Store

    store = Store.connect(own_redis_server.url)
    own_redis_server.kill()
    ((status, _),) = ask(store, ("POST", ONE, {"json": {"value": 1}}))
    store.close()
    assert status == 503
