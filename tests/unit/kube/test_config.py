import base64
import ssl
from datetime import timedelta

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.unit.kube.support import NOON, HandClock
from wainwright.kube.config import ConfigError, from_file, in_cluster, load_config


@pytest.fixture(scope="module")
def pair():
    """A certificate and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOON)
        .not_valid_after(NOON + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


def written(path, *, user=None, cluster=None, context=None, name="one"):
    content = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
        "clusters": [{"name": name, "cluster": {"server": "https://cluster.example:6443/", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_token_and_namespace_are_read(tmp_path):
    config = from_file(
        written(tmp_path / "kc", user={"token": "secret"}, context={"namespace": "team"}), clock=HandClock()
    )
    assert config.server == "https://cluster.example:6443"
    assert config.headers() == {"Authorization": "Bearer secret"}
    assert config.namespace == "team"


def test_client_certificate_and_authority_are_used(tmp_path, pair):
    certificate, key = pair
    (tmp_path / "client.key").write_bytes(key)
    user = {"client-certificate-data": base64.b64encode(certificate).decode(), "client-key": "client.key"}
    cluster = {"certificate-authority-data": base64.b64encode(certificate).decode()}
    context = from_file(written(tmp_path / "kc", user=user, cluster=cluster), clock=HandClock()).ssl_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] == 1


def test_verification_is_off_only_when_the_file_says_so(tmp_path):
    config = from_file(written(tmp_path / "kc", cluster={"insecure-skip-tls-verify": True}), clock=HandClock())
    assert config.ssl_context().verify_mode is ssl.CERT_NONE
    plain = from_file(written(tmp_path / "kc", cluster={"server": "http://x"}), clock=HandClock())
    assert plain.ssl_context() is None


def test_first_of_several_files_wins(tmp_path):
    first = written(tmp_path / "a", user={"token": "first"})
    second = written(tmp_path / "b", user={"token": "second"}, name="two")
    both = f"{first}:{second}:{tmp_path / 'missing'}"
    assert from_file(both, clock=HandClock()).headers() == {"Authorization": "Bearer first"}
    assert from_file(both, "two", clock=HandClock()).headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("current-context: prod\ncontexts: [{name: dev, context: {}}]", "no context 'prod'; there is: dev"),
        ("just a text", "not a kubeconfig"),
        ("a: [", "while parsing"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: b}}]", "names cluster 'b', which is missing"),
    ],
)
def test_unusable_file_is_refused_with_what_is_wrong(tmp_path, text, message):
    (tmp_path / "kc").write_text(text)
    with pytest.raises(ConfigError, match=message):
        from_file(str(tmp_path / "kc"), clock=HandClock())


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        load_config(str(tmp_path / "nowhere"))


def test_service_account_token_is_read_again_when_it_may_have_rotated(tmp_path):
    (tmp_path / "ca.crt").write_bytes(b"")
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "namespace").write_text("wainwright")
    clock = HandClock()
    config = in_cluster(tmp_path, host="fd00::1", port="443", clock=clock)
    assert config.server == "https://[fd00::1]:443"
    assert config.namespace == "wainwright"
    assert config.headers() == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert config.headers() == {"Authorization": "Bearer one"}
    clock.seconds += 61
    assert config.headers() == {"Authorization": "Bearer two"}


def test_refused_token_is_read_again_at_once(tmp_path):
    (tmp_path / "token").write_text("one")
    config = from_file(written(tmp_path / "kc", user={"tokenFile": "token"}), clock=HandClock())
    assert config.headers() == {"Authorization": "Bearer one"}
    (tmp_path / "token").write_text("two")
    assert config.refresh()
    assert config.headers() == {"Authorization": "Bearer two"}


def test_static_credentials_have_nothing_newer(tmp_path):
    assert not from_file(written(tmp_path / "kc", user={"token": "x"}), clock=HandClock()).refresh()


def test_exec_plugin_is_asked_through_the_official_client(tmp_path):
    """The first token is refused (401), so the plugin is asked again."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo x >> {tmp_path}/calls\n"
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
        f'\\"status\\":{{\\"token\\":\\"t$(wc -l < {tmp_path}/calls | tr -d \' \')\\"}}}}"\n'
    )
    plugin.chmod(0o755)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
            "provideClusterInfo": False,
        }
    }
    config = from_file(written(tmp_path / "kc", user=user), clock=HandClock())
    assert config.headers() == {"Authorization": "Bearer t1"}
    assert config.refresh()
    assert config.headers() == {"Authorization": "Bearer t2"}
