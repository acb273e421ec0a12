"""What the tests of the Kubernetes adapter share: a clock moved by hand, a scripted API server, builders."""

import http.server
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from wainwright.api.meta import Condition, ObjectMeta, OwnerReference
from wainwright.api.nodes import Node, NodeSpec, NodeStatus
from wainwright.api.pods import Pod, PodSpec, PodStatus
from wainwright.kube.client import KubeClient
from wainwright.kube.config import KubeConfig

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
UNSCHEDULABLE = (Condition(type="PodScheduled", status="False", reason="Unschedulable"),)


class HandClock:
    """Wall and monotonic time that move only when told."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return NOON + timedelta(seconds=self.seconds - 1000.0)

    def monotonic_seconds(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


def a_pod(name="web-0", *, rv="5", uid=None, node="", phase="Pending", conditions=UNSCHEDULABLE, labels=None, **spec):
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-{name}",
            resource_version=str(rv),
            labels=labels or {},
            annotations=spec.pop("annotations", {}),
            owner_references=tuple(OwnerReference(kind=kind, name="x") for kind in spec.pop("owners", ())),
        ),
        spec=PodSpec(node_name=node, **spec),
        status=PodStatus(phase=phase, conditions=conditions),
    )


def a_node(name="node-1", *, rv="5", cpu="4", conditions=(), labels=None):
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version=str(rv), labels=labels or {}),
        spec=NodeSpec(),
        status=NodeStatus(capacity={"cpu": cpu}, allocatable={"cpu": cpu}, conditions=conditions),
    )


def status_answer(code, reason, message="no", **details):
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


class ScriptedServer:
    """Answers requests in the order of `script`: (status, body), or a function that writes to the handler itself."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                step = outer.script.pop(0)
                if callable(step):
                    step(self)
                    return
                status, content = step
                data = content if isinstance(content, bytes) else msgspec.json.encode(content)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """Clients that leave early are part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def scripted(*script, config=None, **options):
    """A client of a scripted server, and the server."""
    server = ScriptedServer(*script)
    client = KubeClient(config or KubeConfig(server.url), **options)
    if config is not None:
        config.server = server.url
    try:
        yield client, server
    finally:
        client.close()
        server.stop()


def chunked(*chunks, end=True, then=None):
    """Writes the chunks as they are, one HTTP chunk each; end: finish the body; then: called before that."""

    def write(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for chunk in chunks:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            handler.wfile.flush()
        if then is not None:
            then()
        if end:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True

    return write


def event(kind, **meta):
    return msgspec.json.encode({"type": kind, "object": {"metadata": meta}}) + b"\n"
