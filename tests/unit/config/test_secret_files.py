"""PIPELINE_…_FILE: secrets in files, and what is said of a file that gives none; never a secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config.settings import SECRETS, load, unknown_variables, variable
from pipeline.errors import ConfigError
from tests.fixtures.server import run_command

SECRET = "sentinel-91-geheim"
DSN = f"postgresql://me:{SECRET}@db/shop"
Set = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Set:
    return lambda name, value: monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_every_secret_may_be_in_a_file(name: str, end: str, tmp_path: Path, given: Set) -> None:
    file = tmp_path / "secret"
    file.write_bytes(f"{DSN}{end}".encode())
    given(f"{variable(name)}_FILE", file)
    if name == "read_token":  # refused without the other token
        given("PIPELINE_API_TOKEN", "another")
    assert getattr(load(), name).get_secret_value() == DSN
    assert unknown_variables() == {}


def test_it_outranks_the_settings_file_and_a_flag_outranks_it(tmp_path: Path, given: Set) -> None:
    (tmp_path / "pipeline.toml").write_text('source_dsn = "host=toml"\napi_token = "toml"\n')
    (tmp_path / "dsn").write_text("host=secret")
    given("PIPELINE_SOURCE_DSN_FILE", tmp_path / "dsn")
    assert load().source == "host=secret"
    assert load(source_dsn="host=flag").source == "host=flag"
    given("PIPELINE_SOURCE_DSN_FILE", tmp_path / "missing")
    assert load(source_dsn="host=flag").source == "host=flag"


def test_a_variable_that_is_set_to_nothing_is_not_set(tmp_path: Path, given: Set) -> None:
    """As compose passes on what is not set outside."""
    (tmp_path / "token").write_text(SECRET)
    given("PIPELINE_API_TOKEN", "")
    given("PIPELINE_API_TOKEN_FILE", tmp_path / "token")
    given("PIPELINE_SOURCE_DSN_FILE", "")
    config = load()
    assert config.source_dsn is None
    assert config.api_token is not None
    assert config.api_token.get_secret_value() == SECRET


def test_both_is_refused(tmp_path: Path, given: Set) -> None:
    (tmp_path / "token").write_text(SECRET)
    given("PIPELINE_API_TOKEN", SECRET)
    given("PIPELINE_API_TOKEN_FILE", tmp_path / "token")
    assert refusal() == "PIPELINE_API_TOKEN and PIPELINE_API_TOKEN_FILE are both set; unset one of them"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "{file} is empty; write the secret into it, or unset the variable"),
        (b" \n", "{file} is empty; write the secret into it, or unset the variable"),
        (SECRET.encode("utf-16"), "{file} is not text in UTF-8; write only the secret into it"),
        (SECRET.encode() * 5000, "{file} is too long for a secret; name the file that contains only the secret"),
        (f"postgresql://me:{SECRET}@x@db/shop".encode(), "expected a libpq URI"),
        (None, "{file} cannot be read: No such file or directory; name a file that this user may read, or unset it"),
    ],
    ids=["empty", "blank", "no text", "long", "no DSN", "missing"],
)
def test_a_file_that_gives_no_secret(content: bytes | None, said: str, tmp_path: Path, given: Set) -> None:
    file = tmp_path / "dsn"
    if content is not None:
        file.write_bytes(content)
    given("PIPELINE_DATABASE_DSN_FILE", file)
    assert refusal().startswith("PIPELINE_DATABASE_DSN_FILE: " + said.format(file=file))


def test_a_folder_is_no_file(tmp_path: Path, given: Set) -> None:
    given("PIPELINE_SOURCE_DSN_FILE", tmp_path)
    assert f"{tmp_path} cannot be read: Is a directory" in refusal()


@pytest.mark.parametrize("value", [DSN, SECRET, f"host=db password={SECRET}"])
def test_a_secret_in_the_place_of_its_file_is_not_printed(value: str, given: Set) -> None:
    given("PIPELINE_SOURCE_DSN_FILE", value)
    assert "the file (its name is not shown, because it may be the secret itself) cannot be read" in refusal()


def test_a_command_ends_with_one_plain_line(tmp_path: Path) -> None:
    done = run_command("status", folder=tmp_path, source_dsn_file="/run/missing")
    assert done.returncode == 2
    assert done.stderr == (
        "pipeline: PIPELINE_SOURCE_DSN_FILE: /run/missing cannot be read: No such file or directory; "
        "name a file that this user may read, or unset it\n"
    )


def refusal() -> str:
    """What is said of the settings, which has no secret in it."""
    with pytest.raises(ConfigError) as caught:
        load()
    assert SECRET not in str(caught.value)
    return str(caught.value)
