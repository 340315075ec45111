"""Removes passwords from libpq's connection strings, since these go into plans and from machine to machine."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

VARIABLE = "PIPELINE_DATABASE_DSN"
_SECRET = frozenset({"password", "sslpassword"})
_PAIR = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)", re.DOTALL)
_URI = re.compile(r"(postgres(?:ql)?://)(?:([^@/]*)@)?([^?]*)(?:\?(.*))?", re.DOTALL)


def without_password(dsn: str) -> str:
    """Return the DSN without password: libpq takes that from PGPASSWORD, a password file or a service file."""
    if found := _URI.fullmatch(dsn):
        scheme, user, where, query = found.groups()
        who = "" if user is None else user.partition(":")[0] + "@"
        kept = [part for part in (query or "").split("&") if part and unquote(part.partition("=")[0]) not in _SECRET]
        return scheme + who + where + ("?" + "&".join(kept) if kept else "")
    pairs = list(_PAIR.finditer(dsn))
    if not any(found[1] in _SECRET for found in pairs):
        return dsn
    return " ".join(found[0].strip() for found in pairs if found[1] not in _SECRET)


def password(dsn: str) -> str | None:
    """Return the password in a DSN; None if the DSN has none."""
    if found := _URI.fullmatch(dsn):
        _, user, _, query = found.groups()
        parts = dict(part.partition("=")[::2] for part in (query or "").split("&"))
        plain = parts.get("password") or (user or "").partition(":")[2]
        return unquote(plain) or None
    for pair in _PAIR.finditer(dsn):
        if pair[1] == "password":
            return re.sub(r"\\(.)", r"\1", pair[2].removeprefix("'").removesuffix("'")) or None
    return None


def with_own_password(dsn: str) -> str:
    """Return this process's own PIPELINE_DATABASE_DSN, with its password, if it names the same place; else the DSN."""
    ours = os.environ.get(VARIABLE, "")
    return ours if ours and without_password(ours) == dsn else dsn
