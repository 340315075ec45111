"""What Spark's tasks import from the zip that is sent to them is compiled already."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from zipimport import zipimporter

from lake.running.cluster import zip_modules


def test_tasks_import_byte_code_and_another_python_the_source(tmp_path: Path) -> None:
    made = zip_modules(tmp_path)
    with zipfile.ZipFile(made) as read:
        content = {name: read.read(name) for name in read.namelist() if not name.endswith("/")}
    assert {Path(name).suffix for name in content} == {".py", ".pyc"}
    assert [name for name in content if name.endswith(".py") and f"{name}c" not in content] == []
    assert zipimporter(f"{made}/lake").get_filename("errors").endswith("lake/errors.pyc")
    assert zipimporter(f"{made}/lake/running").get_filename("cluster").endswith("cluster.pyc")

    other = tmp_path / "other.zip"
    magic = importlib.util.MAGIC_NUMBER
    with zipfile.ZipFile(other, "w") as written:
        for name, text in content.items():
            written.writestr(name, text.replace(magic, b"\0" * len(magic), 1) if name.endswith("c") else text)
    assert zipimporter(f"{other}/lake").get_filename("errors").endswith("lake/errors.py")
