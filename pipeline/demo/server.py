"""The server as a child process: `pipeline serve` with the demo's settings, and its log in a file."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pipeline
from pipeline.config.settings import Config
from pipeline.demo import stage
from pipeline.errors import PipelineError
from pipeline.process import python_path

READY_TIMEOUT = 60.0
"""Seconds that the server may take to be ready; the server of an earlier demo may still be stopping."""
STOP_TIMEOUT = 35.0
_LAST_LINES = 12

# It ends with this process, even after kill -9: Linux then sends it SIGTERM, and it drains.
_UNTIL_PARENT_ENDS = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, kept over exec
if os.getppid() != int(sys.argv[1]):
    sys.exit("the demo has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerProcess:
    """`pipeline serve`, running from construction until `stop`."""

    def __init__(self, config: Config) -> None:
        self.log = config.data_dir / "serve.log"
        self.port = _free_port()
        serve = [sys.executable, "-m", "pipeline", "--config", str(stage.settings_file(config)), "serve"]
        if sys.platform == "linux":
            serve = [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_ENDS, str(os.getpid()), *serve]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                serve,
                env=_environment(self.port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops it
            )

    def require_alive(self) -> None:
        """Raise PipelineError, with the last lines of its log, if the server has ended."""
        code = self._process.poll()
        if code is not None:
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
            error = PipelineError(f"the server {ended}; the end of {self.log}:")
            for line in self._last_lines():
                error.add_note(line)
            raise error

    def wait_until_ready(self) -> None:
        """Wait until the server is ready. Raises PipelineError if it ends instead, or is not ready in time."""
        deadline = time.monotonic() + READY_TIMEOUT
        while (reason := self._not_ready()) is not None:
            self.require_alive()
            if time.monotonic() > deadline:
                raise PipelineError(f"the server is not ready after {READY_TIMEOUT:.0f} s: {reason}; see {self.log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Let the server drain and stop; kill it if that takes too long, or at Ctrl-C."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()

    def _not_ready(self) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body = answer.read()
            return None if answer.status == 200 else "; ".join(json.loads(body)["reasons"])
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        finally:
            connection.close()

    def _last_lines(self) -> list[str]:
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        return [f"  {line}" for line in lines[-_LAST_LINES:]]


def _environment(port: int) -> dict[str, str]:
    """Return this environment without settings; modules come from this package, not from the current folder."""
    return {
        **python_path.environment(Path(pipeline.__file__).parents[1]),
        "PIPELINE_HTTP_PORT": str(port),
        "PIPELINE_GRPC_PORT": "off",
        "PIPELINE_LOG_FORMAT": "text",
        "PIPELINE_EXPORT_SCHEDULE": "off",  # the demo exports at its end
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
