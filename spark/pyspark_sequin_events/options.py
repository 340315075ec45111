"""Reads the options of the data source, and checks their names and values. Every error is one plain line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from pyspark_sequin_events.dsn import VARIABLE, password, without_password

KNOWN = (
    "dsn",
    "eventsTable",
    "table",
    "version",
    "tables",
    "actions",
    "keys",
    "columns",
    "splitKeyChanges",
    "after",
    "upto",
    "rowsPerPartition",
    "startingSeq",
    "maxRowsPerBatch",
    "consumer",
)
"""The names of all options. Case and underscores do not matter: `rows_per_partition` names an option, too."""
_FROM_SPARK = ("path", "paths", "__paths__")


class SourceOptions:
    """The options of one read, by name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raise ValueError for an unknown option, and for a DSN that contains a password."""
        self._given = {_plain(name): value for name, value in given.items() if name not in _FROM_SPARK}
        wrong = [name for name in given if name not in _FROM_SPARK and _plain(name) not in map(_plain, KNOWN)]
        if wrong:
            raise ValueError(f"sequin_events: there is no option {wrong[0]}; there are {', '.join(KNOWN)}")
        dsn = self.text("dsn")
        if dsn and (password(dsn) is not None or without_password(dsn) != dsn):
            raise ValueError(
                "sequin_events: option dsn holds a password, which would be in plans and go over the network; leave it "
                f"out, and give it to driver and executors by PGPASSFILE, a service file or {VARIABLE}"
            )
        self.dsn = dsn or without_password(os.environ.get(VARIABLE, ""))
        if not self.dsn:
            raise ValueError(f"sequin_events: option dsn is missing, and {VARIABLE} is not set")
        self.events_table = self.text("eventsTable") or "public.sequin_events"
        if self.events_table.count(".") != 1:
            raise ValueError(f"sequin_events: option events_table is {self.events_table!r}, expected schema.table")

    def text(self, name: str) -> str | None:
        """Return the value of an option as the user wrote it; None if the option is not set."""
        return self._given.get(_plain(name))

    def number(self, name: str, default: int, least: int | None = None) -> int:
        """Return an option's whole number, of at least `least`. Raises ValueError for another value."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"sequin_events: option {_shown(name)} is {text!r}, expected a whole number") from None
        if least is not None and value < least:
            raise ValueError(f"sequin_events: option {_shown(name)} must be at least {least}")
        return value

    def flag(self, name: str) -> bool:
        """Return True if an option is `true`, False if it is `false` or not set. Raises ValueError for other values."""
        text = (self.text(name) or "false").lower()
        if text not in ("true", "false"):
            raise ValueError(f"sequin_events: option {name} is {text!r}, expected true or false")
        return text == "true"

    def names(self, name: str, *, only_json: bool = False) -> tuple[str, ...] | None:
        """Return an option's texts: a JSON array, or unless `only_json` a list with commas; None if it is not set."""
        text = self.text(name)
        if text is None:
            return None
        expected = "a JSON array of texts" if only_json else "names separated by commas, or a JSON array of them"
        try:
            found = json.loads(text) if only_json or text.lstrip().startswith("[") else text.split(",")
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError(f"sequin_events: option {name} is {text!r}, expected {expected}")
        return tuple(found if only_json else (each.strip() for each in found))

    def refuse(self, *names: str, because: str) -> None:
        """Raise ValueError if one of these options is set."""
        for name in names:
            if self.text(name) is not None:
                raise ValueError(f"sequin_events: option {_shown(name)} {because}")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _shown(name: str) -> str:
    """Return the name of an option in messages: older options have underscores, as on the page."""
    return {"rowsPerPartition": "rows_per_partition", "eventsTable": "events_table"}.get(name, name)
