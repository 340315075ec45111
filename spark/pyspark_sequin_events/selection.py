"""What a read selects: which table in which version, which rows and columns; and the SQL of that for a range of seq."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from pyspark_sequin_events import key_changes
from pyspark_sequin_events.conditions import of_options
from pyspark_sequin_events.frame import struct
from pyspark_sequin_events.history import Version
from pyspark_sequin_events.options import Options
from pyspark_sequin_events.query import EVENTS, changes_of, events_of, qualified
from pyspark_sequin_events.reading import Read


@dataclass(frozen=True)
class Chosen:
    """A source table, by schema and name, in one schema version."""

    schema: str
    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Selection:
    """Rows of an events table: `chosen` None: of all source tables, as they are.

    `conditions`: SQL that holds for each row. `columns`: which of them; None: all. `split`: changes of keys are a
    delete and an insert.
    """

    dsn: str
    events_table: str
    chosen: Chosen | None
    conditions: tuple[str, ...]
    columns: tuple[str, ...] | None
    split: bool

    @classmethod
    def of(cls, options: Options, chosen: Chosen | None) -> Selection:
        """What the options say. Raises ValueError for columns that there are not."""
        if chosen is not None:
            options.refuse("tables", because="is for reading without option table")
        names = options.names("columns")
        conditions = of_options(
            options.names("tables"), options.names("actions"), options.names("keys", only_json=True)
        )
        found = cls(options.dsn, options.events_table, chosen, conditions, None, options.flag("splitKeyChanges"))
        return found if names is None else found.narrowed(names)

    @property
    def every_column(self) -> Mapping[str, str]:
        """Name → type of all that could be read."""
        return self.chosen.version.schema if self.chosen else EVENTS

    @property
    def schema(self) -> Mapping[str, str]:
        """Name → type of what is read."""
        every = self.every_column
        return every if self.columns is None else {name: every[name] for name in self.columns}

    def narrowed(self, columns: tuple[str, ...]) -> Selection:
        """These columns of it, in this order. Raises ValueError for one that there is not."""
        wrong = [name for name in columns if name not in self.every_column]
        if wrong or not columns:
            raise ValueError(
                f"sequin_events: there is no column {next(iter(wrong), '')!r}; there are {', '.join(self.every_column)}"
            )
        return replace(self, columns=columns)

    def as_given(self, schema: StructType) -> Selection:
        """The columns of the user's schema. Raises ValueError for one that is not ours, or has another type."""
        found = self.narrowed(tuple(schema.fieldNames()))
        for ours, theirs in zip(struct(found.schema).fields, schema.fields, strict=True):
            if ours.dataType.simpleString() != theirs.dataType.simpleString():
                raise ValueError(
                    f"sequin_events: column {ours.name} is {ours.dataType.simpleString()}, and not "
                    f"{theirs.dataType.simpleString()} as the given schema says; cast it after reading"
                )
        return found

    def where(self, *more: str) -> Selection:
        """With further conditions."""
        return replace(self, conditions=(*self.conditions, *more))

    def read(self, after: int, upto: int) -> Read:
        """That range of it."""
        careful = self._query(careful=True)
        plain = self.split or "seq" not in self.schema
        query = careful if plain else self._query(careful=False)
        order = key_changes.ORDER if self.split else "seq"
        return Read(self.dsn, query, careful, self.schema, after, upto, order)

    def _query(self, *, careful: bool) -> str:
        events = qualified(self.events_table)
        if self.split:
            events = key_changes.split(events, EVENTS)
        if self.chosen is None:
            query = events_of(events, tuple(self.schema))
        else:
            of = (self.events_table, self.chosen.schema, self.chosen.name, self.chosen.version)
            query = changes_of(*of, careful=careful, events=events, wanted=tuple(self.schema))
        return query + "".join(f" and {condition}" for condition in self.conditions)
