import threading

import msgspec
import pytest

from tests.unit.kube.support import ScriptedServer, chunked, event, scripted, status_answer
from wainwright.api.pods import Pod
from wainwright.errors import AlreadyExists, Conflict, Expired, KubeError, KubeUnavailable, NotFound, Refused
from wainwright.kube.client import KubeClient, WatchEvent
from wainwright.kube.config import Credentials, KubeConfig
from wainwright.kube.resources import DAEMON_SETS, NODE_POOLS, NODES, PODS


def a_list(*items, version="7", more=""):
    return 200, {"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path("default", "web"), "/api/v1/namespaces/default/pods/web"),
        (PODS.path(), "/api/v1/pods"),
        (NODES.path(name="n1", subresource="status"), "/api/v1/nodes/n1/status"),
        (DAEMON_SETS.path("kube-system"), "/apis/apps/v1/namespaces/kube-system/daemonsets"),
        (NODE_POOLS.path("ignored", "a/b"), "/apis/karpenter.sh/v1/nodepools/a%2Fb"),
    ],
)
def test_path_of_a_resource(path, expected):
    assert path == expected


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status_answer(404, "NotFound"), NotFound),
        (status_answer(409, "AlreadyExists"), AlreadyExists),
        (status_answer(409, "Conflict"), Conflict),
        (status_answer(410, "Expired"), Expired),
        (status_answer(422, "Invalid"), KubeError),
        (status_answer(403, "Forbidden"), KubeError),
        (status_answer(429, "TooManyRequests"), KubeUnavailable),
        (status_answer(429, "TooManyRequests", causes=[{"reason": "DisruptionBudget"}]), Refused),
        (status_answer(500, "InternalError"), KubeUnavailable),
        (status_answer(504, "Timeout"), KubeUnavailable),
        (status_answer(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]), Expired),
        ((502, b"<html>bad gateway</html>"), KubeUnavailable),
    ],
)
def test_refusals_become_the_error_that_says_what_to_do(answer, error):
    with scripted(answer) as (client, _), pytest.raises(error) as raised:
        client.evict("default", "web", "uid-1")
    assert type(raised.value) is error


def test_too_many_requests_tells_when_to_come_again():
    answer = status_answer(429, "TooManyRequests", retryAfterSeconds=4)
    with scripted(answer) as (client, _), pytest.raises(KubeUnavailable) as raised:
        client.get(PODS, "web", "default", as_type=Pod)
    assert raised.value.retry_after == 4


def test_list_is_gathered_page_by_page_at_one_version():
    first, second = a_list({"metadata": {"name": "a"}}, more="next"), a_list({"metadata": {"name": "b"}}, version="9")
    with scripted(first, second) as (client, server):
        pods, version = client.list(PODS, Pod, limit=1, field_selector="spec.nodeName=")
        assert [pod.metadata.name for pod in pods] == ["a", "b"]
        assert version == "7", "what changed while listing comes from the watch"
        assert "limit=1" in server.requests[0][1]
        assert "fieldSelector=spec.nodeName%3D" in server.requests[0][1]
        assert "continue=next" in server.requests[1][1]


def test_one_object_that_cannot_be_decoded_does_not_spoil_the_list():
    broken = {"metadata": {"namespace": "default", "name": "bad", "uid": "u1"}, "spec": {"nodeName": 7}}
    bad = []
    with scripted(a_list(broken, {"metadata": {"name": "good"}})) as (client, _):
        pods, _ = client.list(PODS, Pod, on_undecodable=bad.append)
    assert [pod.metadata.name for pod in pods] == ["good"]
    assert [(one.key, one.uid) for one in bad] == [("default/bad", "u1")]
    assert "spec.nodeName" in bad[0].why


def test_list_that_is_cut_off_is_told_as_unavailable():
    with scripted((200, b'{"items": [{"metadata"')) as (client, _), pytest.raises(KubeUnavailable):
        client.list(PODS, Pod)


def test_answer_that_drips_is_given_up_in_time():
    """Each byte comes before the socket's time-out; the call must end all the same."""
    enough = threading.Event()

    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not enough.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    with scripted(drip, call_timeout=0.3) as (client, _):
        with pytest.raises(KubeUnavailable):
            client.get(PODS, "web", "default", as_type=Pod)
        enough.set()


def test_server_that_does_not_answer_is_told_as_unavailable():
    never = threading.Event()
    with scripted(lambda _: never.wait(5), call_timeout=0.1) as (client, _):
        with pytest.raises(KubeUnavailable):
            client.create(PODS, {"metadata": {"name": "web"}}, "default")
        never.set()


def test_no_connection_is_told_as_unavailable():
    server = ScriptedServer()
    server.stop()
    with pytest.raises(KubeUnavailable):
        KubeClient(KubeConfig(server.url)).get(PODS, "web", "default", as_type=Pod)


def hang_up(handler):
    handler.close_connection = True


def test_read_is_repeated_when_the_server_hung_up():
    """A kept connection may be closed by the server just as it is used."""
    with scripted(hang_up, (200, {"metadata": {"name": "web"}})) as (client, server):
        assert client.get(PODS, "web", "default", as_type=Pod).metadata.name == "web"
        assert len(server.requests) == 2


def test_write_is_never_repeated_by_itself():
    with scripted(hang_up, (201, {})) as (client, server):
        with pytest.raises(KubeUnavailable):
            client.bind("default", "web", "uid-1", "node-1")
        assert len(server.requests) == 1


class RotatingCredentials(Credentials):
    def __init__(self):
        super().__init__()
        self.tokens = ["old", "new"]

    def headers(self):
        return {"Authorization": f"Bearer {self.tokens[0]}"}

    def refresh(self):
        self.tokens.pop(0)
        return True


def test_rotated_token_is_read_again_after_401():
    config = KubeConfig("http://set-later", credentials=RotatingCredentials())
    answers = status_answer(401, "Unauthorized"), (200, {"metadata": {"name": "web"}})
    with scripted(*answers, config=config) as (client, server):
        client.get(PODS, "web", "default", as_type=Pod)
        assert [headers["Authorization"] for _, _, headers, _ in server.requests] == ["Bearer old", "Bearer new"]


def test_writes_say_what_the_api_server_wants_to_know():
    with scripted(*[(200, {})] * 5) as (client, server):
        client.create(NODE_POOLS, {"metadata": {"name": "general"}})
        client.merge_patch(PODS, "web", {"metadata": {"labels": {"a": None}}}, "default", "status")
        client.delete(PODS, "web", "default", uid="u1", resource_version="9", grace_seconds=0)
        client.bind("default", "web", "u1", "node-1")
        client.evict("default", "web", "u1")
        sent = [(method, path, msgspec.json.decode(body)) for method, path, _, body in server.requests]
        assert sent[0][2] == {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}}
        assert sent[1][:2] == ("PATCH", "/api/v1/namespaces/default/pods/web/status")
        assert server.requests[1][2]["Content-Type"] == "application/merge-patch+json"
        assert sent[2][2]["preconditions"] == {"uid": "u1", "resourceVersion": "9"}
        assert sent[2][2]["gracePeriodSeconds"] == 0
        assert sent[3][2]["metadata"]["uid"] == "u1"
        assert sent[3][2]["target"]["name"] == "node-1"
        assert sent[4][2]["deleteOptions"]["preconditions"] == {"uid": "u1"}


# Watches --------------------------------------------------------------------------------------------------------------


def watched(client, **options):
    return list(client.watch(PODS, Pod, "5", **options))


def test_events_are_found_however_the_bytes_are_cut():
    text = event("ADDED", name="a", resourceVersion="6") + event("DELETED", name="b", resourceVersion="7")
    pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
    with scripted(chunked(*pieces)) as (client, server):
        events = watched(client)
        assert [(e.type, e.object.metadata.name, e.resource_version) for e in events] == [
            ("ADDED", "a", "6"),
            ("DELETED", "b", "7"),
        ]
        assert "resourceVersion=5" in server.requests[0][1]
        assert "allowWatchBookmarks=true" in server.requests[0][1]
        assert "timeoutSeconds=10" in server.requests[0][1]


def test_bookmark_moves_the_version_and_carries_no_object():
    with scripted(chunked(event("BOOKMARK", resourceVersion="99"))) as (client, _):
        assert watched(client) == [WatchEvent("BOOKMARK", None, "99")]


def test_event_that_cannot_be_decoded_is_told_and_the_next_one_comes():
    broken = b'{"type":"MODIFIED","object":{"metadata":{"name":"x","resourceVersion":"6"},"spec":{"nodeName":[]}}}\n'
    with scripted(chunked(broken + event("ADDED", name="a", resourceVersion="7"))) as (client, _):
        bad, good = watched(client)
    assert bad.undecodable.key == "x"
    assert bad.resource_version == "6"
    assert good.object.metadata.name == "a"


@pytest.mark.parametrize("how", ["answer", "event"])
def test_version_that_is_too_old_is_told_as_expired(how):
    code, status = status_answer(410, "Expired")
    step = (code, status) if how == "answer" else chunked(msgspec.json.encode({"type": "ERROR", "object": status}))
    with scripted(step) as (client, _), pytest.raises(Expired):
        watched(client)


def test_silent_watch_is_cut_by_the_client():
    """f60: the time-out given was the server's only, and the client hung for hours."""
    never = threading.Event()
    with scripted(chunked(then=lambda: never.wait(5))) as (client, _):
        with pytest.raises(KubeUnavailable):
            watched(client, silence_seconds=0.1)
        never.set()


def test_watch_that_ends_in_the_middle_of_an_event_is_broken():
    with scripted(chunked(event("ADDED", name="a")[:20])) as (client, _), pytest.raises(KubeUnavailable):
        watched(client)


def test_connection_that_breaks_is_told_as_unavailable():
    with scripted(chunked(event("ADDED", name="a"), end=False)) as (client, _), pytest.raises(KubeUnavailable):
        watched(client)


def test_watch_is_stopped_from_another_thread_at_once():
    never, seen = threading.Event(), threading.Event()
    with scripted(chunked(event("ADDED", name="a"), then=lambda: never.wait(10))) as (client, _):
        watch = client.watch(PODS, Pod, "5")
        events = []

        def follow():
            for one in watch:
                events.append(one)
                seen.set()

        thread = threading.Thread(target=follow)
        thread.start()
        assert seen.wait(5)
        watch.stop()
        thread.join(2)
        assert not thread.is_alive()
        never.set()


def test_discovery_finds_how_a_kind_is_served():
    group = 200, {"preferredVersion": {"version": "v1alpha1"}}
    served = 200, {"resources": [{"name": "widgets/status", "kind": "Widget"}, {"name": "widgets", "kind": "Widget"}]}
    served[1]["resources"][1]["namespaced"] = False
    with scripted(group, served, status_answer(404, "NotFound")) as (client, _):
        assert client.discover("example.com", "Widget").path(name="w") == "/apis/example.com/v1alpha1/widgets/w"
        assert client.discover("example.org", "Widget") is None
