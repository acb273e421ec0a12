"""Sources on a real server and on fakeredis; a small HTTP server that lies, hangs and floods on demand."""

import http.server
import itertools
import threading

import msgspec
import pytest
import redis

from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.clock import SystemClock
from wainwright.podscaling.autoscalers import define
from wainwright.podscaling.collector import Collector
from wainwright.podscaling.connections import Connections

names = (f"p{number}" for number in itertools.count())


@pytest.fixture
def name():
    """For keys of one test on the shared server."""
    return next(names)


@pytest.fixture
def client(redis_server):
    with redis.Redis.from_url(redis_server.url) as made:
        yield made


@pytest.fixture
def collector(redis_server):
    made = Collector(Connections(redis_server.url, None), SystemClock())
    yield made
    made.close()


def an_autoscaler(*metrics, name="web", **annotations):
    pa = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {f"autoscaling.knative.dev/{k.replace('_', '-')}": v for k, v in annotations.items()},
        },
        "spec": {"scaleTargetRef": {"name": name}, "metrics": list(metrics)},
    }
    return define(msgspec.convert(pa, PodAutoscaler), AutoscalerConfig(), 4)


def now():
    return SystemClock().now()


class Pages(http.server.ThreadingHTTPServer):
    """Answers by path. pages: path → bytes, a status, or a function of the handler. asked: paths, in order."""

    daemon_threads = True

    def __init__(self):
        self.pages = {}
        self.asked = []
        self.release = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self):
        self.release.set()
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(self.path)
        page = self.server.pages.get(path, 404)
        if callable(page):
            page(self)
            return
        status, body = (page, b"") if isinstance(page, int) else (200, page)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def pages():
    made = Pages()
    yield made
    made.stop()
