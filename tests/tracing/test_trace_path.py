"""The tracer sees what a process, its threads and its forks enter, and nothing of what it leaves out."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT
from tests.tracing.__main__ import report
from tests.tracing.tracer import WITH_ALL_BELOW, Entered, Tracer
from tests.tracing.ways import WAYS, trace

_PROGRAM = """
import os, threading, pipeline.named, pipeline.other
print(flush=True), input()
pipeline.named.outer()
thread = threading.Thread(target=pipeline.other.in_thread)
thread.start(), thread.join()
if os.fork() == 0:
    pipeline.other.in_fork()
    os._exit(0)
os.wait(), print(flush=True), input()
pipeline.other.too_late()
"""


def test_the_tracer_notes_functions_threads_and_forks_of_a_window(tmp_path: Path) -> None:
    code, notes = tmp_path / "code", tmp_path / "notes"
    (code / "pipeline").mkdir(parents=True)
    (code / "pipeline/__init__.py").touch()
    notes.mkdir()
    (code / "pipeline/named.py").write_text("def outer():\n    inner()\ndef inner():\n    pass\n")
    (code / "pipeline/other.py").write_text(
        "".join(f"def {name}():\n    pass\n" for name in ("in_thread", "in_fork", "too_late"))
    )
    tracer = Tracer(notes, code)
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        cwd=tmp_path,
        env={**os.environ, **tracer.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None and program.stdout is not None
    program.stdout.readline()
    with tracer.window() as window:
        program.stdin.write(b"\n")
        program.stdin.flush()
        program.stdout.readline()
    program.communicate(b"\n")
    found = list(tracer.entered())
    assert {each.window for each in found} == {window}
    assert [each.stack[0] for each in found if each.process == str(program.pid) or "-c" in each.process][:2] == [
        "pipeline/named.py:outer",
        "pipeline/named.py:inner",
    ]
    assert {each.stack[0].partition(":")[2] for each in found} == {"outer", "inner", "in_thread", "in_fork"}
    assert len({each.process for each in found}) == 2


def test_what_is_left_out_is_left_out_with_all_that_it_calls() -> None:
    path = "pipeline/log/a.py:work"
    entered = [Entered("shuffle", 1, (path, *callers)) for callers in ((), ("pipeline/queue.py:fill",))]
    assert [each.counts(["pipeline/queue.py"]) for each in entered] == [True, False]
    assert not Entered("shuffle", 1, (path, "pipeline/log/b.py:<module>", "pipeline/c.py:go")).counts([])


def test_what_is_left_out_is_in_the_code() -> None:
    for name in (name for names in WITH_ALL_BELOW.values() for name in names):
        path, _, function = name.partition(":")
        defined = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
        assert defined.issuperset(filter(None, function.split("."))), name


def test_a_direct_change_enters_what_reads_and_writes_it(cluster: Cluster) -> None:
    rounds = trace(WAYS["direct"], cluster, 1)
    files = {each.file for each in rounds[0] if each.process == "replication" and each.counts([])}
    assert files >= {
        "pipeline/capture/replication/stream.py",
        "pipeline/wal/pgoutput.py",
        "pipeline/log/writing/direct_path.py",
    }
    first, *lines = report("A change", rounds, [])
    assert first.startswith("A change: ") and first.endswith("in each of 1 rounds")
    assert any(line.startswith("    pipeline/log/writing: ") for line in lines)
