"""Python imports this when it starts, in each process of a traced server, and notes which functions are entered.

Only while a window is open: `window` in the folder of TRACE_PATH is a byte that all processes map, 0 if none is. A
process that is forked, and a thread that is started, continues it.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import cast


class Recorder:
    """Writes each new stack of the traced code's functions into a file of its process, a line of JSON."""

    def __init__(self, folder: Path, code: str) -> None:
        """`code`: the folder whose `pipeline` is traced."""
        self._folder, self._prefix = folder, f"{code}/"
        with (folder / "window").open("rb") as file:
            self._window = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
        self._paths = dict[str, str]()
        self._seen = set[tuple[int, tuple[str, ...]]]()
        os.register_at_fork(after_in_child=self._seen.clear)

    def start(self) -> None:
        """Trace this thread, and all that come."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """What Python calls when a function is entered, or a coroutine goes on."""
        window = self._window[0]
        if event != "call" or not window or not self._path(frame):
            return
        stack, each = list[str](), cast("FrameType | None", frame)
        while each is not None:
            if path := self._path(each):
                stack.append(f"{path}:{each.f_code.co_qualname}")
            each = each.f_back
        key = window, tuple(stack)
        if key not in self._seen:
            self._seen.add(key)
            with (self._folder / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(json.dumps([window, stack]) + "\n")

    def _path(self, frame: FrameType) -> str:
        """The file of a frame, from the code's folder on; empty if it is not of the traced code."""
        name = frame.f_code.co_filename
        found = self._paths.get(name)
        if found is None:
            inside = name.startswith(f"{self._prefix}pipeline/")
            found = self._paths[name] = name.removeprefix(self._prefix) if inside else ""
        return found


if _folder := os.environ.get("TRACE_PATH"):
    Recorder(Path(_folder), os.environ["TRACE_CODE"]).start()
