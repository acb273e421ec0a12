"""The embedded API server by itself: start, creates, lists, watches, memory.

One server as a child process over TLS, one client process beside it; no controllers.
"""

import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import uvloop
import yaml

from bench.figures import Figure, spread

CONNECTIONS = 8
WATCHERS = 5
NODES = 200
TICKS = os.sysconf("SC_CLK_TCK")


def a_pod(number):
    """About 2.5 KB as stored."""
    variables = [{"name": f"VARIABLE_{n}", "value": f"value-{n}-of-some-length"} for n in range(14)]
    container = {
        "name": "main",
        "image": "registry.example.com/team/application:1.2.3",
        "env": variables,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/ready"}},
    }
    labels = {"app": f"app-{number % 50}", "pod-template-hash": "6d5f8c9b7", "tier": "web"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:06}", "labels": labels},
        "spec": {"containers": [container], "nodeSelector": {"topology.kubernetes.io/zone": "zone-a"}},
    }


class Connection:
    """One keep-alive connection: a request at a time, as little work as possible."""

    def __init__(self, host, port, context, token):
        self._place = (host, port, context)
        self._head = f"Host: {host}\r\nAuthorization: Bearer {token}\r\n"

    async def open(self):
        host, port, context = self._place
        self._reader, self._writer = await asyncio.open_connection(host, port, ssl=context, limit=2**26)
        return self

    def send(self, method, path, body=b"", media="application/json"):
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)

    async def status(self):
        """Status and headers of the answer; its body is still to be read."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        return int(head[9:12]), head.lower()

    async def call(self, method, path, body=b"", media="application/json"):
        self.send(method, path, body, media)
        status, head = await self.status()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        data = await self._reader.readexactly(length)
        assert status < 300, data
        return data

    async def lines(self, path):
        """Lines of a watch."""
        self.send("GET", path)
        await self.status()
        rest = b""
        while True:
            size = int((await self._reader.readline()).strip() or b"0", 16)
            if not size:
                return
            *lines, rest = (rest + (await self._reader.readexactly(size + 2))[:-2]).split(b"\n")
            for line in lines:
                yield line

    def close(self):
        self._writer.close()


class Server:
    def __init__(self, folder):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "wainwright.sim.apiserver", "--exit-with-parent"]
        command += ["--kubeconfig", str(folder / "kubeconfig"), "--data-dir", str(folder / "data")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.start_seconds = time.perf_counter() - begun
        config = yaml.safe_load((folder / "kubeconfig").read_text())
        cluster = config["clusters"][0]["cluster"]
        host, _, port = cluster["server"].removeprefix("https://").partition(":")
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        self._place = (host, int(port), context, config["users"][0]["user"]["token"])

    def connect(self):
        return Connection(*self._place).open()

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def megabytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        self.process.stdout.close()


PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


async def create(server, count):
    bodies = [json.dumps(a_pod(number)).encode() for number in range(count)]
    connections = [await server.connect() for _ in range(CONNECTIONS)]

    async def work(connection, mine):
        for body in mine:
            await connection.call("POST", PODS, body)

    used, begun = server.cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(work(c, bodies[n::CONNECTIONS]) for n, c in enumerate(connections)))
    took, used = time.perf_counter() - begun, server.cpu_seconds() - used
    for connection in connections:
        connection.close()
    return count / took, used / count


async def bind_all(connection, count):
    for number in range(count):
        name = f"pod-{number:06}"
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": f"node-{number % NODES}"}}
        await connection.call("POST", f"{PODS}/{name}/binding", json.dumps(body).encode())


async def timed(connection, path, times):
    took, size = [], 0
    for _ in range(times):
        begun = time.perf_counter()
        size = len(await connection.call("GET", path))
        took.append(time.perf_counter() - begun)
    return took, size


def note(moment):
    return json.dumps({"metadata": {"annotations": {"sent": repr(moment)}}}).encode()


def sent_at(line):
    start = line.index(b'"sent":"') + 8
    return float(line[start : line.index(b'"', start)])


async def watched(server, count, patches, watchers, pause_seconds, senders):
    """Latencies from sending a patch to each watcher's seeing it, and patches per second."""
    sender = [await server.connect() for _ in range(senders)]
    version = json.loads(await sender[0].call("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
    latencies = [[] for _ in range(watchers)]

    async def follow(found):
        connection = await server.connect()
        async for line in connection.lines(f"/api/v1/pods?watch=1&timeoutSeconds=300&resourceVersion={version}"):
            if line and b'"sent":"' in line:
                found.append(time.perf_counter() - sent_at(line))
                if len(found) == patches:
                    break
        connection.close()

    following = [asyncio.create_task(follow(found)) for found in latencies]
    await asyncio.sleep(0.3)
    begun = time.perf_counter()

    async def work(number):
        for turn, patch in enumerate(range(number, patches, senders)):
            wait = begun + turn * pause_seconds - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            body = note(time.perf_counter())
            await sender[number].call("PATCH", f"{PODS}/pod-{patch % count:06}", body, MERGE)

    await asyncio.gather(*(work(number) for number in range(senders)))
    rate = patches / (time.perf_counter() - begun)
    await asyncio.wait_for(asyncio.gather(*following), 60)
    for connection in sender:
        connection.close()
    return [value for found in latencies for value in found], rate


async def figures(run, server):
    count = 1_000 if run.quick else 10_000
    yield Figure(name="start to ready", values={"": server.start_seconds}, unit="s", target="1 s")
    rate, cpu = await create(server, count)
    name = f"{count:,} pods created, {CONNECTIONS} connections"
    yield Figure(name=name, values={"per second": rate, "server CPU ms": cpu * 1000}, target="1,500 per second")
    connection = await server.connect()
    took, size = await timed(connection, PODS, 5)
    values = {**spread(took, 1000), "MB": size / 1e6}
    yield Figure(name=f"list of {count:,} pods", values=values, unit="ms", target="300 ms")
    await bind_all(connection, count)
    took, _ = await timed(connection, "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-7", 100)
    yield Figure(name=f"list of one of {NODES} nodes' pods", values=spread(took, 1000), unit="ms")
    took, _ = await timed(connection, f"{PODS}/pod-000007", 300)
    yield Figure(name="get one pod", values=spread(took, 1000), unit="ms")
    patches = 300 if run.quick else 1_000
    found, _ = await watched(server, count, patches, 1, 0.005, 1)
    yield Figure(name="patch to watcher, quiet", values=spread(found, 1000), unit="ms", target="p50 3 ms")
    patches = 1_000 if run.quick else 10_000
    found, rate = await watched(server, count, patches, WATCHERS, 0.004, 4)
    values = {**spread(found, 1000), "patches per second": rate}
    name = f"patch to each of {WATCHERS} watchers, 1,000 patches per second asked"
    yield Figure(name=name, values=values, unit="ms", target="no lag")
    name = f"resident memory, {count:,} pods of 2.5 KB, a full history"
    yield Figure(name=name, values={"": server.megabytes()}, unit="MB", target="400 MB")
    connection.close()


def measure(run):
    server = Server(run.folder)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = figures(run, server)
        try:
            while True:
                yield runner.run(anext(found))
        except StopAsyncIteration:
            pass
        finally:
            server.stop()
