"""Files of the certificate settings that are no good; rpc/test_tls.py has a server with good ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.fixtures.postgres import free_port
from tests.fixtures.server import run_command


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem, key.pem, another key, a key with a passphrase and a file that is none."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
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
