"""Which options the JVM of a run gets: by how much it reads, and never beside options of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.exports import job
from pipeline.exports.java import JavaInstallation

JAVA = JavaInstallation("PATH", Path("/usr/bin/java"), "17.0.9")


def test_a_small_run_starts_soon_and_leaves_an_archive_for_the_next(tmp_path: Path) -> None:
    first = job.jvm_options(JAVA, "local[*]", 1, tmp_path, {})
    archive = Path(first["LAKE_CLASS_ARCHIVE"])
    assert archive.parent == tmp_path / "java"
    assert f'"-XX:ArchiveClassesAtExit={archive.with_suffix(".part")}"' in first["SPARK_SUBMIT_OPTS"]
    assert job.QUICK_START in first["SPARK_SUBMIT_OPTS"] and first["SPARK_LAUNCHER_OPTS"] == job.QUICK_START
    archive.touch()
    second = job.jvm_options(JAVA, "local[*]", job.FEW_EVENTS, tmp_path, {})
    assert f'"-XX:SharedArchiveFile={archive}"' in second["SPARK_SUBMIT_OPTS"]
    assert "LAKE_CLASS_ARCHIVE" not in second
    another = job.jvm_options(JavaInstallation("PATH", JAVA.executable, "21"), "local", 1, tmp_path, {})
    assert another["LAKE_CLASS_ARCHIVE"] != str(archive)


def test_a_run_of_some_events_has_a_heap_that_grows_with_what_it_holds(tmp_path: Path) -> None:
    for events in (job.FEW_EVENTS + 1, job.SOME_EVENTS):
        found = job.jvm_options(JAVA, "local[2]", events, tmp_path, {})
        assert job.TIGHT_HEAP in found["SPARK_SUBMIT_OPTS"] and found["MALLOC_ARENA_MAX"] == "2"
        assert "LAKE_CLASS_ARCHIVE" not in found
    assert job.jvm_options(JAVA, "local", events, tmp_path, {"MALLOC_ARENA_MAX": "4"})["MALLOC_ARENA_MAX"] == "4"


@pytest.mark.parametrize(
    ("master", "events", "environment"),
    [
        ("local[*]", job.SOME_EVENTS + 1, {}),
        ("local[*]", None, {}),
        ("spark://host:7077", 1, {}),
        *(("local[2]", 1, {name: "-XX:+UseParallelGC"}) for name in job.USERS_JAVA_OPTIONS),
    ],
)
def test_other_runs_start_as_java_does(
    master: str, events: int | None, environment: dict[str, str], tmp_path: Path
) -> None:
    assert job.jvm_options(JAVA, master, events, tmp_path, environment) == {}
