"""Names of followers: what is one, how one is made, and which cannot both be there. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pipeline.config import follower_passwords
from pipeline.errors import FollowerRefusedError

LONGEST = 63
_EXPECTED = f"a follower's name has 1 to {LONGEST} of the letters A-Z a-z, digits, `_`, `.` and `-`"


def require_free(name: str, taken: Collection[str]) -> None:
    """Raises FollowerRefusedError for what is no name, is taken, or has the password variable of one that is.

    What is no name is not shown: somebody will give a DSN with a password in its place.
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


def made(parts: Mapping[str, str], taken: Collection[str]) -> str:
    """A free name of host, port and database, as these libpq parameters have them."""
    base = _plain(parts)
    known = {variable for each in taken for variable in follower_passwords.variables(each)}
    name, number = base[:LONGEST], 1
    while follower_passwords.variables(name) & known:
        number += 1
        name = f"{base[: LONGEST - len(str(number)) - 1]}-{number}"
    return name


def _plain(parts: Mapping[str, str]) -> str:
    host = parts.get("host") or parts.get("hostaddr") or parts.get("service") or "local"
    if host.startswith(("/", "@")):  # the folder of a socket says nothing to anybody
        host = "local"
    listed = [host.partition(",")[0], parts.get("port", "").partition(",")[0], parts.get("dbname", "")]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in listed if part)).strip(".-") or "follower"
