"""HTTPS by the certificate settings, and files that are no good."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trustme

from tests.fixtures.postgres import free_port
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, cert.pem, key.pem, another key, a key with a passphrase and a file that is none."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, made in (("", authority.issue_cert("localhost")), ("other-", authority.issue_cert("localhost"))):
        made.private_key_pem.write_to_path(folder / f"{name}key.pem")
        made.cert_chain_pems[0].write_to_path(folder / f"{name}cert.pem")
    (folder / "locked.pem").write_bytes(_locked((folder / "key.pem").read_bytes()))
    (folder / "none.pem").write_text("nothing")
    return folder


def _locked(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return form.load_pem_private_key(key, None).private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"x")
    )


def test_https(serve: Callable[..., Serving], files: Path) -> None:
    server = serve(http_certificate=files / "cert.pem", http_key=files / "key.pem", wait=False)
    with httpx.Client(verify=ssl.create_default_context(cafile=files / "ca.pem"), timeout=60) as client:
        where = f"https://localhost:{server.port}"
        eventually(lambda: client.get(f"{where}/readyz").status_code == 200, timeout=60, errors=(httpx.TransportError,))
        assert client.get(f"{where}/v1/consumers").json() == {"data": []}
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{server.port}/healthz")


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("absent.pem", "key.pem", "PIPELINE_HTTP_CERTIFICATE: {0} cannot be read: No such file or directory"),
        ("cert.pem", "absent.pem", "PIPELINE_HTTP_KEY: {1} cannot be read: No such file or directory"),
        ("none.pem", "key.pem", "PIPELINE_HTTP_CERTIFICATE: {0} has no certificate in PEM format"),
        ("cert.pem", "none.pem", "PIPELINE_HTTP_KEY: {1} has no private key in PEM format"),
        ("cert.pem", "other-key.pem", "PIPELINE_HTTP_KEY: {1} is not the key of {0}"),
        ("cert.pem", "locked.pem", "PIPELINE_HTTP_KEY: {1} has a passphrase"),
    ],
)
def test_files_that_are_no_good(tmp_path: Path, files: Path, certificate: str, key: str, said: str) -> None:
    given = files / certificate, files / key
    done = run_command("serve", folder=tmp_path, http_certificate=given[0], http_key=given[1], http_port=free_port())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("pipeline: " + said.format(*given))
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / ".pipeline").exists()
