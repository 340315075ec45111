"""Names of followers: which are valid, how a default name is made, and which two cannot both exist. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pipeline.config import follower_passwords
from pipeline.errors import FollowerRefusedError

LONGEST = 63
_EXPECTED = f"a follower's name has 1 to {LONGEST} of the letters A-Z a-z, digits, `_`, `.` and `-`"


def require_free(name: str, taken: Collection[str]) -> None:
    """Check that a follower may get this name.

    Raises FollowerRefusedError if the name is invalid or taken, or if it has the password variable of a taken name. The
    error does not show an invalid name, which may be a DSN with a password.
    """
    if not re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{LONGEST}}}", name) or name in (".", ".."):
        raise FollowerRefusedError(f"{_EXPECTED}; choose another, and give the database with --dsn")
    if name in taken:
        raise FollowerRefusedError(f'there is a follower "{name}"; choose another name, or remove that one')
    for other in sorted(taken):
        if shared := follower_passwords.variables(other) & follower_passwords.variables(name):
            raise FollowerRefusedError(
                f'"{name}" and the follower "{other}" would have one password variable, {min(shared)}; '
                "choose another name"
            )


def make_name(parts: Mapping[str, str], taken: Collection[str]) -> str:
    """Return a free name made of the host, port and database of these libpq parameters."""
    base = _plain(parts)
    known = {variable for each in taken for variable in follower_passwords.variables(each)}
    name, number = base[:LONGEST], 1
    while follower_passwords.variables(name) & known:
        number += 1
        name = f"{base[: LONGEST - len(str(number)) - 1]}-{number}"
    return name


def _plain(parts: Mapping[str, str]) -> str:
    host = parts.get("host") or parts.get("hostaddr") or parts.get("service") or "local"
    if host.startswith(("/", "@")):  # the folder of a socket
        host = "local"
    listed = [host.partition(",")[0], parts.get("port", "").partition(",")[0], parts.get("dbname", "")]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in listed if part)).strip(".-") or "follower"
