"""A program `pipeline` for pages: it asks a process to fork the command, since most of a command is its imports."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fixtures.command_server import Forked, forker

_BIGGEST = 2**20
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect({address!r})
socket.send_fds(line, [json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
pid = int(line.recv(16))
signal.signal(signal.SIGINT, lambda *_: os.kill(pid, signal.SIGINT))
sys.exit(int(line.recv(16)))
"""


@contextmanager
def quick_pipeline() -> Iterator[Path]:
    """Yield a folder with the program; what it has started ends with the block."""
    started: list[Forked] = []
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        address, program = f"{folder}/commands", Path(folder, "pipeline")
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        listener.bind(address)
        listener.listen()
        threading.Thread(target=_accept, args=(listener, started), daemon=True).start()
        try:
            yield Path(folder)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in started:
                each.kill()


def _accept(listener: socket.socket, started: list[Forked]) -> None:
    while True:
        try:
            line, _ = listener.accept()
        except OSError:  # the block has ended
            return
        threading.Thread(target=_run, args=(line, started), daemon=True).start()


def _run(line: socket.socket, started: list[Forked]) -> None:
    """Run one command, and answer with its pid, then with its exit status."""
    with line:
        request, files, _, _ = socket.recv_fds(line, _BIGGEST, 3)
        arguments, folder, environment = json.loads(request)
        command = forker().start(arguments, Path(folder), environment, files, session=True)
        started.append(command)
        for each in files:
            os.close(each)
        line.send(b"%d" % command.pid)
        line.send(b"%d" % command.wait())
