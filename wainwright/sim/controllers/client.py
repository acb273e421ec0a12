"""Requests to the API server: kubeconfig, TLS, JSON bodies, Status errors. The only module here that speaks HTTP."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import yaml
from yarl import URL

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90)
_CONCURRENT_REQUESTS = 48
"""Enough to keep a server busy from one process; more only lengthens its queue."""


class ApiError(Exception):
    """The server refused. status: HTTP code; reason: the Status reason (`NotFound`, `Conflict`, `AlreadyExists`, …).

    name: the object that the refusal is about; empty where it is about something else (an unknown path, say).
    """

    def __init__(self, status: int, reason: str, message: str, name: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.name = name


class Unreachable(Exception):
    """No answer was received: try again later."""


class _Identity(msgspec.Struct, frozen=True):
    uid: str = ""


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Identity


class _Details(msgspec.Struct, frozen=True):
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """Address and credentials, as a kubeconfig's current context names them."""

    address: str
    tls: ssl.SSLContext | None
    headers: Mapping[str, str]


def _content(section: Mapping[str, Any], name: str, base: Path) -> bytes | None:
    """Bytes of `name-data` (base64) or of the file `name` points to; None if neither is given."""
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"])
    return (base / section[name]).read_bytes() if section.get(name) else None


def load_kubeconfig(path: Path) -> ServerAccess:
    """Read the current context of a kubeconfig: server, CA, bearer token or client certificate.

    Raises ValueError when the context, its cluster or its user is missing.
    """
    config = yaml.safe_load(path.read_text())

    def named(section: str, name: str, field: str) -> dict[str, Any]:
        for entry in config.get(section) or []:
            if entry.get("name") == name:
                return dict(entry.get(field) or {})
        raise ValueError(f"{path}: no entry {name!r} in {section}")

    context = named("contexts", config.get("current-context", ""), "context")
    cluster = named("clusters", context.get("cluster", ""), "cluster")
    user = named("users", context.get("user", ""), "user")
    tls: ssl.SSLContext | None = None
    if cluster["server"].startswith("https"):
        authority = _content(cluster, "certificate-authority", path.parent)
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        certificate = _content(user, "client-certificate", path.parent)
        key = _content(user, "client-key", path.parent)
        if certificate and key:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pair:  # ssl reads certificates from files only
                pair.write(certificate + b"\n" + key)
                pair.flush()
                tls.load_cert_chain(pair.name)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "wainwright-sim-controllers"}
    if user.get("token"):
        headers["Authorization"] = f"Bearer {user['token']}"
    elif user.get("tokenFile"):
        headers["Authorization"] = f"Bearer {(path.parent / user['tokenFile']).read_text().strip()}"
    return ServerAccess(address=cluster["server"].rstrip("/"), tls=tls, headers=headers)


class ApiClient:
    """Bounded concurrent requests over kept connections. Use as `async with`."""

    def __init__(self, access: ServerAccess) -> None:
        self._access = access
        self._slots = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.tls or False, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=dict(self._access.headers), read_bufsize=1 << 20, auto_decompress=False
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        url = URL(self._access.address + path, encoded=True)
        return url.with_query(dict(query)) if query else url

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "",
    ) -> bytes:
        """The body of a 2xx answer. Raises ApiError on any other status, Unreachable when there is no answer."""
        assert self._session is not None
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept:
            headers["Accept"] = accept
        data = msgspec.json.encode(body) if body is not None else None
        async with self._slots:
            try:
                async with self._session.request(
                    method, self._url(path, query), data=data, headers=headers, timeout=_REQUEST_TIMEOUT
                ) as answer:
                    content = await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unreachable(f"{method} {path}: {type(error).__name__}") from error
        if status >= 300:
            raise _refusal(status, content)
        return content

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return await self.request("GET", path, query=query)

    async def create(self, path: str, body: object) -> bytes:
        return await self.request("POST", path, body)

    async def replace(self, path: str, body: object) -> bytes:
        return await self.request("PUT", path, body)

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> bytes:
        return await self.request("PATCH", path, body, content_type=content_type)

    async def delete(
        self, path: str, *, uid: str = "", grace_seconds: int | None = None, propagation: str = ""
    ) -> bool:
        """Delete one object (only that incarnation, if `uid` is given). Returns False if it was gone already."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        try:
            await self.request("DELETE", path, options)
        except ApiError as error:
            if error.status == 404 or (error.status == 409 and uid and await self._is_another(path, uid)):
                return False
            raise
        return True

    async def _is_another(self, path: str, uid: str) -> bool:
        """Is the object at `path` not the one with this uid (any more)?"""
        try:
            return msgspec.json.decode(await self.get(path), type=_Identified).metadata.uid != uid
        except ApiError as error:
            return error.status == 404

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Chunks of a watch as they arrive; ends when the server ends it. Raises as `request` does."""
        assert self._session is not None
        try:
            async with self._session.get(self._url(path, query), timeout=_WATCH_TIMEOUT) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, await answer.read())
                async for chunk in answer.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"watch {path}: {type(error).__name__}") from error


def _refusal(status: int, content: bytes) -> ApiError:
    try:
        answer = msgspec.json.decode(content, type=_Status)
    except msgspec.DecodeError:
        return ApiError(status, "", content[:200].decode(errors="replace"))
    return ApiError(status, answer.reason, answer.message, answer.details.name if answer.details else "")
