"""Whether cores are short: how long this process has waited for one while it could have run."""

from __future__ import annotations

from pathlib import Path

SCHEDSTAT = Path("/proc/self/schedstat")


class RunDelay:
    """What the scheduler says of this process's main thread; nothing where there is no such file."""

    def __init__(self, file: Path = SCHEDSTAT) -> None:
        self._file = file
        self._before = self._read()

    def share(self) -> float:
        """Of the time since the last call in which it ran or could have run, the share in which it waited; 0 to 1."""
        before, self._before = self._before, self._read()
        ran, waited = (new - old for new, old in zip(self._before, before, strict=True))
        return waited / (ran + waited) if ran + waited > 0 else 0.0

    def _read(self) -> tuple[int, int]:
        """Nanoseconds on a core, and in the queue for one (kernel documentation, "Scheduler Statistics")."""
        try:
            ran, waited, _ = self._file.read_text().split()
        except (OSError, ValueError):
            return 0, 0
        return int(ran), int(waited)
