"""The user that runs Postgres's programs: Postgres refuses to run as root. For other users nothing changes."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.process import inherited

_FALLBACK_USERS = ("postgres", "nobody")

# A separate program, and no preexec_fn: no Python may run between fork and exec of a process that may have threads.
_IN_USER_NAMESPACE = """
import ctypes, os, sys
inside, uid, gid = sys.argv[1], os.geteuid(), os.getegid()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000):  # CLONE_NEWUSER
    sys.exit(os.strerror(ctypes.get_errno()))
for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"), ("gid_map", f"{inside} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
os.execv(sys.argv[2], sys.argv[2:])
"""


def _passwd_variables() -> dict[str, str]:
    """Return the variables by which nss_wrapper gives this user an entry in passwd."""
    names = ("LD_PRELOAD", "NSS_WRAPPER_PASSWD", "NSS_WRAPPER_GROUP")
    return {name: os.environ[name] for name in names if name in os.environ}


@dataclass(frozen=True)
class ProgramUser:
    """A user who runs Postgres's programs: this one, root with another uid in a user namespace, or another user."""

    name: str
    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    def run(self, *command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program until it ends. It gets neither our terminal nor environment variables that Postgres reads."""
        with inherited.own_child():
            return subprocess.run(
                [*self.prefix, *map(str, command)],
                cwd=cwd,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC", **_passwd_variables()},
                user=self.user,
                group=self.group,
                extra_groups=None if self.user is None else [],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                start_new_session=True,
            )

    def own(self, directory: Path) -> None:
        """Make this user the owner of the files that root has created in `directory`."""
        if self.user is None or self.group is None:
            return
        for folder, _, files in os.walk(directory):
            for path in (folder, *(os.path.join(folder, file) for file in files)):
                if os.lstat(path).st_uid != self.user:
                    os.chown(path, self.user, self.group, follow_symlinks=False)


def identities(home: Path) -> Iterator[ProgramUser]:
    """Yield the users who may run the Postgres in `home`, the best one first."""
    owner = home.stat()
    if os.geteuid() != 0:
        yield ProgramUser("this user")
    elif owner.st_uid != 0:
        yield ProgramUser(f"its owner, user {owner.st_uid},", user=owner.st_uid, group=owner.st_gid)
    else:
        inside = next((str(user.pw_uid) for user in pwd.getpwall() if user.pw_uid), "1000")  # initdb needs a known user
        launcher = (sys.executable, "-I", "-S", "-c", _IN_USER_NAMESPACE, inside)
        yield ProgramUser("root in a user namespace", launcher)
        for name in _FALLBACK_USERS:
            with suppress(KeyError):
                user = pwd.getpwnam(name)
                yield ProgramUser(f"user {name}", user=user.pw_uid, group=user.pw_gid)
