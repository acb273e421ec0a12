"""Scraped pods and Prometheus queries against a server that lies, hangs and floods."""

import json

import pytest

from tests.contract.podscaling.conftest import an_autoscaler, now
from wainwright.podscaling.sources.pods import PodAddress

PROXY = b"""# HELP queue_average_concurrent_requests Number of requests
# TYPE queue_average_concurrent_requests gauge
queue_average_concurrent_requests{destination_pod="a",note="} 9"} 5
queue_average_proxied_concurrent_requests{destination_pod="a"} 2
queue_requests_per_second 40
queue_proxied_operations_per_second 10
"""


def scrape(collector, pages, *, pods=1, metric="", kind="gauge", port=None):
    source = {"type": "pods", "pods": {"port": port or pages.server_port, "metric": metric, "kind": kind}}
    addresses = [PodAddress(f"web-{number}", "127.0.0.1", None) for number in range(pods)]
    one = an_autoscaler(source)
    samples = collector.collect([one], {one.key: addresses}, now(), seconds=5)
    return [(sample.value, sample.message) for sample in samples]


def test_knative_names_are_read_and_the_proxied_part_is_taken_off(collector, pages):
    pages.pages["/metrics"] = PROXY
    assert scrape(collector, pages) == [(3.0, "")]


def test_requests_per_second_are_read_for_that_metric(collector, pages):
    pages.pages["/metrics"] = PROXY
    source = {"type": "pods", "pods": {"port": pages.server_port}}
    one = an_autoscaler(source, metric="rps")
    samples = collector.collect([one], {one.key: [PodAddress("a", "127.0.0.1", None)]}, now(), seconds=5)
    assert [sample.value for sample in samples] == [30.0]


def test_any_gauge_can_be_named(collector, pages):
    pages.pages["/metrics"] = b'busy{worker="1"} 2\nbusy{worker="2"} 1.5\nbusy_total 77\n'
    assert scrape(collector, pages, metric="busy") == [(3.5, "")]


def test_a_sample_of_many_pods_stands_for_all(collector, pages):
    pages.pages["/metrics"] = b"busy 2\n"
    assert scrape(collector, pages, pods=50, metric="busy") == [(100.0, "")]
    assert len(pages.asked) == 12


def test_a_counter_is_read_as_its_increase(collector, pages, monkeypatch):
    pages.pages["/metrics"] = b"served_total 100\n"
    ((value, message),) = scrape(collector, pages, metric="served_total", kind="counter")
    assert value is None
    assert "second reading" in message
    pages.pages["/metrics"] = b"served_total 130\n"
    ((value, _),) = scrape(collector, pages, metric="served_total", kind="counter")
    assert value > 0


def test_pods_that_do_not_answer_are_replaced_by_others(collector, pages):
    turn = iter(range(1000))

    def sometimes(handler):
        status = 500 if next(turn) < 5 else 200
        body = b"busy 4\n"
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    pages.pages["/metrics"] = sometimes
    assert scrape(collector, pages, pods=50, metric="busy") == [(200.0, "")]


def flood(handler):
    """A gigabyte, if it is let."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 30))
    handler.end_headers()
    try:
        for _ in range(1 << 14):
            handler.wfile.write(b"x" * (1 << 16))
    except OSError:
        pass
    handler.close_connection = True


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"busy NaN\n", "nan is not a finite number"),
        (b"busy +Inf\n", "inf is not a finite number"),
        (b"busy -3\n", "-3 is negative"),
        (b"busy 1e300\n", "1e+300 is more than"),
        (b"busy lots\n", "holds no number"),
        (b"other 1\n", "there is no busy"),
        (b"", "there is no busy"),
        (b"\xff\xfe\x00", "there is no busy"),
        (503, "answered 503"),
        (301, "answered 301"),
        (flood, "larger than 1 MiB"),
    ],
)
def test_what_a_pod_must_not_say_is_no_load(collector, pages, page, why):
    pages.pages["/metrics"] = page
    ((value, message),) = scrape(collector, pages, metric="busy")
    assert value is None
    assert why in message
    assert "pod web-0" in message


def test_a_pod_that_refuses_connections_is_no_load(collector, pages):
    ((value, message),) = scrape(collector, pages, metric="busy", port=1)
    assert value is None
    assert "0 of the 1 pods needed answered" in message


def test_without_pods_there_is_no_sample(collector, pages):
    assert scrape(collector, pages, pods=0) == []


def test_one_that_hangs_holds_up_none_and_is_not_asked_again_meanwhile(collector, pages):
    pages.pages["/hang"] = lambda handler: pages.release.wait(10)
    pages.pages["/api/v1/query"] = json.dumps({"data": {"resultType": "scalar", "result": [1, "7"]}}).encode()
    hanging = an_autoscaler({"type": "pods", "pods": {"port": pages.server_port, "path": "/hang"}}, name="hanging")
    good = an_autoscaler({"type": "prometheus", "prometheus": {"url": pages.url, "query": "q"}}, name="good")
    pods = {hanging.key: [PodAddress("a", "127.0.0.1", None)]}
    for _ in range(2):
        samples = collector.collect([hanging, good], pods, now(), seconds=0.3)
        assert [(sample.key, sample.value) for sample in samples] == [("default/good", 7.0)]
    assert sum(path == "/hang" for path in pages.asked) == 1


def test_what_comes_late_comes_for_the_second_it_was_asked_in(collector, pages):
    pages.pages["/metrics"] = lambda handler: (pages.release.wait(10), answer(handler, b"busy 4\n"))
    source = {"type": "pods", "pods": {"port": pages.server_port, "metric": "busy"}}
    one = an_autoscaler(source)
    pods = {one.key: [PodAddress("a", "127.0.0.1", None)]}
    asked = now()
    assert collector.collect([one], pods, asked, seconds=0.05) == []
    pages.release.set()
    late = []
    while not late:
        late = [s for s in collector.collect([], {}, now(), seconds=0.05) if s.value is not None]
    assert [(s.second, s.value) for s in late] == [(int(asked.timestamp()), 4.0)]


def answer(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def query(collector, pages, page):
    pages.pages["/api/v1/query"] = page if isinstance(page, int) else json.dumps(page).encode()
    one = an_autoscaler({"type": "prometheus", "prometheus": {"url": pages.url + "/", "query": "sum(busy) by (a)"}})
    (sample,) = collector.collect([one], {}, now(), seconds=5)
    return sample.value, sample.message


def vector(*values):
    return {"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, value]} for value in values]}}


def test_a_query_answers_one_number(collector, pages):
    assert query(collector, pages, vector("12.5"))[0] == 12.5
    assert pages.asked == ["/api/v1/query?query=sum(busy)+by+(a)"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (vector(), "answers nothing"),
        (vector("1", "2"), "answers 2 series"),
        (vector("NaN"), "nan is not a finite number"),
        ({"data": {"resultType": "matrix", "result": []}}, "answers a matrix"),
        ({"status": "error"}, "is not one of Prometheus'"),
        (vector("x"), "holds no number"),
        (422, "answered 422"),
    ],
)
def test_an_answer_that_is_no_number_cannot_be_told(collector, pages, page, why):
    value, message = query(collector, pages, page)
    assert value is None
    assert why in message
