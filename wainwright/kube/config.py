"""Where the API server is and how to prove who we are: kubeconfig, or the service account inside a cluster.

Static credentials (token, client certificate, CA, basic) are read directly. Only what is dynamic (exec plugins, auth
providers) goes through the official client, imported when it is needed: importing it costs 50 to 100 MB.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any

import yaml

from wainwright.clock import Clock, SystemClock
from wainwright.errors import PermanentError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_LIFE_SECONDS = 60.0
"""A service account's token file is read again after this long: kubelet rotates it hourly."""


class ConfigError(PermanentError):
    """The kubeconfig cannot be used; the message names file and field."""


class Credentials:
    """Headers that authenticate a request. The base class has fixed ones."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self._headers = headers or {}

    def headers(self) -> dict[str, str]:
        return self._headers

    def refresh(self) -> bool:
        """Called after 401: True when other credentials may be at hand now."""
        return False


class TokenFile(Credentials):
    """A bearer token in a file that somebody else renews."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__()
        self._path = path
        self._clock = clock
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def headers(self) -> dict[str, str]:
        with self._lock:
            if self._clock.monotonic_seconds() - self._read_at > TOKEN_LIFE_SECONDS:
                self._headers = {"Authorization": f"Bearer {self._path.read_text().strip()}"}
                self._read_at = self._clock.monotonic_seconds()
            return self._headers

    def refresh(self) -> bool:
        with self._lock:
            self._read_at = float("-inf")
        return True


class Official(Credentials):
    """Exec plugins and auth providers, by the official client; its own logic renews what expires."""

    def __init__(self, path: str, context: str) -> None:
        super().__init__()
        self._path, self._context = path, context
        self._lock = threading.Lock()
        self.configuration: Any = None
        self._load()

    def _load(self) -> None:
        from kubernetes import client, config

        self.configuration = client.Configuration()
        load: Any = config.load_kube_config
        load(config_file=self._path, context=self._context or None, client_configuration=self.configuration)

    def headers(self) -> dict[str, str]:
        with self._lock:
            token = self.configuration.get_api_key_with_prefix("BearerToken", "authorization")
        return {"Authorization": token} if token else {}

    def refresh(self) -> bool:
        with self._lock:
            self._load()
        return True


class KubeConfig:
    """server: base URL without a trailing slash. ca, certificate, key: PEM bytes, None where not given."""

    def __init__(
        self,
        server: str,
        *,
        credentials: Credentials | None = None,
        ca: bytes | None = None,
        certificate: bytes | None = None,
        key: bytes | None = None,
        insecure: bool = False,
        tls_server_name: str = "",
        proxy_url: str = "",
        namespace: str = "default",
    ) -> None:
        self.server = server.rstrip("/")
        self._credentials = credentials or Credentials()
        self._ca, self._certificate, self._key = ca, certificate, key
        self._insecure = insecure
        self.tls_server_name = tls_server_name
        self.proxy_url = proxy_url
        self.namespace = namespace

    def headers(self) -> dict[str, str]:
        """Authentication of one request, fresh each time: tokens rotate."""
        return self._credentials.headers()

    def refresh(self) -> bool:
        """Looks for newer credentials after a 401; True when it is worth asking again."""
        return self._credentials.refresh()

    def ssl_context(self) -> ssl.SSLContext | None:
        """None for plain HTTP."""
        if not self.server.startswith("https://"):
            return None
        context = ssl.create_default_context(cadata=self._ca.decode() if self._ca else None)
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._certificate is not None and self._key is not None:
            # The standard library reads certificates from files only; ours lives for the length of this call.
            with tempfile.TemporaryDirectory(prefix="wainwright-") as folder:
                pem = Path(folder) / "client.pem"
                pem.touch(mode=0o600)
                pem.write_bytes(self._certificate + b"\n" + self._key)
                context.load_cert_chain(pem)
        return context


def load_config(kubeconfig: str = "", context: str = "", *, clock: Clock | None = None) -> KubeConfig:
    """kubeconfig: a path, several joined by the path separator, or empty for the service account of this pod, else
    $KUBECONFIG, else ~/.kube/config. context: empty for the file's current one. Raises ConfigError.
    """
    clock = clock or SystemClock()
    if not kubeconfig:
        if (SERVICE_ACCOUNT / "token").exists():
            return in_cluster(clock=clock)
        kubeconfig = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return from_file(kubeconfig, context, clock=clock)


def in_cluster(folder: Path = SERVICE_ACCOUNT, *, host: str = "", port: str = "", clock: Clock) -> KubeConfig:
    """The service account mounted into this pod. host, port: default to what kubelet puts into the environment."""
    host = host or os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    port = port or os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = folder / "namespace"
    return KubeConfig(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=TokenFile(folder / "token", clock),
        ca=(folder / "ca.crt").read_bytes(),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_file(kubeconfig: str, context: str = "", *, clock: Clock) -> KubeConfig:
    """A kubeconfig file, or several: the first to name a context, cluster or user wins, as kubectl does it."""
    contexts: dict[str, tuple[Any, Path]] = {}
    clusters: dict[str, tuple[Any, Path]] = {}
    users: dict[str, tuple[Any, Path]] = {}
    current = context
    paths = [Path(part).expanduser() for part in kubeconfig.split(os.pathsep) if part]
    for path in paths:
        if not path.exists() and len(paths) > 1:
            continue
        content = _read(path)
        current = current or content.get("current-context") or ""
        for table, plural, single in (
            (contexts, "contexts", "context"),
            (clusters, "clusters", "cluster"),
            (users, "users", "user"),
        ):
            for entry in content.get(plural) or ():
                table.setdefault(entry.get("name", ""), (entry.get(single) or {}, path.parent))
    if current not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise ConfigError(f"{kubeconfig}: no context {current!r}; there is: {known}")
    chosen = contexts[current][0]
    if chosen.get("cluster") not in clusters:
        raise ConfigError(
            f"{kubeconfig}: context {current!r} names cluster {chosen.get('cluster')!r}, which is missing"
        )
    cluster, cluster_folder = clusters[chosen["cluster"]]
    user, user_folder = users.get(chosen.get("user", ""), ({}, Path()))
    if not cluster.get("server"):
        raise ConfigError(f"{kubeconfig}: cluster {chosen['cluster']!r} has no server")
    certificate, key = (_pem(user, field, user_folder) for field in ("client-certificate", "client-key"))
    credentials = _credentials(user, user_folder, kubeconfig, current, clock)
    if isinstance(credentials, Official) and credentials.configuration.cert_file:
        certificate = Path(credentials.configuration.cert_file).read_bytes()
        key = Path(credentials.configuration.key_file).read_bytes()
    return KubeConfig(
        cluster["server"],
        credentials=credentials,
        ca=_pem(cluster, "certificate-authority", cluster_folder),
        certificate=certificate,
        key=key,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.get("tls-server-name") or "",
        proxy_url=cluster.get("proxy-url") or "",
        namespace=chosen.get("namespace") or "default",
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: not a kubeconfig")
    return content


def _pem(section: dict[str, Any], field: str, folder: Path) -> bytes | None:
    """`FIELD-data` (base64) before `FIELD` (a path, relative to its file's folder)."""
    data = section.get(f"{field}-data")
    if data:
        return base64.b64decode(data)
    if section.get(field):
        path = folder / str(section[field])
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{field}: {path}: {error.strerror}") from error
    return None


def _credentials(user: dict[str, Any], folder: Path, kubeconfig: str, context: str, clock: Clock) -> Credentials:
    if user.get("exec") or user.get("auth-provider"):
        return Official(kubeconfig, context)
    if user.get("tokenFile"):
        return TokenFile(folder / user["tokenFile"], clock)
    if user.get("token"):
        return Credentials({"Authorization": f"Bearer {user['token']}"})
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return Credentials({"Authorization": f"Basic {base64.b64encode(pair).decode()}"})
    return Credentials()
