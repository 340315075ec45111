"""Plans folds: the files of changes, the version with which a fold begins, and the columns of the result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from lake.changes.files import ChangeFile
from lake.errors import UnclearHistoryError
from lake.storage import layout
from lake.tables.columns import NumberedForm, number_columns
from lake.tables.forms import ReplicationPlace
from lake.tables.source_tables import LinkedTable
from pyspark_sequin_events.history import OURS

ROWS_PER_BUCKET = 250_000
"""About how many rows a bucket has; a bucket is rewritten completely when one of its keys changes."""
GROWN = 4
"""A table gets more buckets when its rows are this many times as many as its buckets were made for."""
STATE: Mapping[str, str] = {"record_pk": "string", "seq": "bigint", "committed_at": "timestamp", "exact": "string"}
"""The columns with which every row of a state begins, before the columns of its table."""


@dataclass(frozen=True)
class BucketFile:
    """A file of a version: rows whose crc32(record_pk) modulo the number of buckets is `bucket`."""

    name: str
    bucket: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class StateVersion:
    """A table as of `seq`, in files with `columns` (name → type), those of the form `form_id`.

    The files are in the folder of `dataset`, the table's name at that seq.
    """

    id: int
    dataset: str
    seq: int
    form_id: int
    columns: Mapping[str, str]
    buckets: int
    rows: int
    files: Sequence[BucketFile]


@dataclass(frozen=True)
class StateColumn:
    """A column of a table, identified by `number` under all its names; `type`: as in Spark's DDL."""

    number: int
    name: str
    type: str


@dataclass(frozen=True)
class ChangeReading:
    """Changes in files with `since` <= position < `until` (None: no bound); changes without a position come first.

    `numbers`: column of the files → number of the table's column. Without `has_key`, the table had no key then, so
    nothing identifies its rows. `refused`: the reason why none of these changes can be folded.
    """

    since: ReplicationPlace | None
    until: ReplicationPlace | None
    numbers: Mapping[str, int]
    has_key: bool
    refused: str | None = None


@dataclass(frozen=True)
class ChangeSource:
    """Files of changes that were written with the same columns. `paths`: those in the lake.

    `tables`: pairs (epoch, oid) of the table; the files may have changes of other tables that had the same name.
    """

    schema_version: int
    columns: Mapping[str, str]
    paths: Sequence[str]
    tables: Sequence[tuple[int, int]]
    readings: Sequence[ChangeReading]


@dataclass(frozen=True)
class PlannedFold:
    """A planned fold: changes with `after` < seq <= `seq` become rows of `columns`, with record_pk by one key.

    The changes are folded over `base`, or over the result of the fold before. `rekeyed`: if the key is another one than
    in that base, the form whose key makes the record_pk of its rows. `form`: the form whose columns the result has.
    `rows`: the number of changes, about.
    """

    dataset: str
    seq: int
    after: int
    base: StateVersion | None
    base_columns: Sequence[StateColumn]
    rekeyed: NumberedForm | None
    form: NumberedForm
    columns: Sequence[StateColumn]
    sources: Sequence[ChangeSource]
    bytes: int
    rows: int

    @property
    def schema(self) -> dict[str, str]:
        """Name → type of the table's columns in the result."""
        return {column.name: column.type for column in self.columns}

    @property
    def columns_before(self) -> Sequence[StateColumn]:
        """The columns in which rows of the base are read. Columns of a new key have the types from which it is made."""
        if self.rekeyed is None:
            return self.columns
        of_key = columns_of(self.rekeyed)
        numbers = {column.number for column in of_key}
        return [*of_key, *(column for column in self.columns if column.number not in numbers)]


@dataclass(frozen=True)
class FullBackfill:
    """A backfill that has read all rows: as of `upto`, the changes after `since` are enough to make the table.

    `others`: the last seq of each other events table when the backfill began.
    """

    since: int
    upto: int
    others: Mapping[str, int] = field(default_factory=dict, hash=False)


FilesAfter = Callable[[int], Sequence[ChangeFile]]
"""The files of a table with changes after a seq, in order of seq."""


@dataclass(frozen=True)
class FoldHistory:
    """The facts about a table that its folds need, besides its files.

    `file_names`: the names of columns in files, by dataset and schema version. `place`: the greatest place of a change
    up to the seq of the fold; None: no change has a place. `whole_since`: the backfill before which the lake lacks
    changes of the table; None: it lacks none.
    """

    table: LinkedTable
    file_names: Mapping[tuple[str, int], Mapping[str, str]]
    place: ReplicationPlace | None
    backfills: Sequence[FullBackfill] = ()
    whole_since: FullBackfill | None = None


def plan(history: FoldHistory, files_after: FilesAfter, bases: Iterable[StateVersion], seq: int) -> list[PlannedFold]:
    """Plan the folds, each over the one before, whose last makes the state as of `seq`; several if the key changed.

    The folds begin with the newest of `bases` that is not newer than `seq`. There are none if the table has no key at
    `seq`. Raises UnclearHistoryError if nothing tells which columns are the same, unless a backfill came later.
    """
    numbered = number_columns(history.table.forms)
    reached = [form for form in numbered if history.place and form.place <= history.place] or numbered[:1]
    now = reached[-1]
    if not now.key:
        return []
    base, begins, after = _begin(history, reached, bases, seq)
    eras = _eras(reached)
    start = next(number for number, era in enumerate(eras) if reached[begins] in era.forms)
    used = [file for file in files_after(after) if file.first_seq <= seq]
    foldings: list[PlannedFold] = []
    for number_of_era in range(start, len(eras)):
        era, is_last = eras[number_of_era], number_of_era == len(eras) - 1
        form = now if is_last else eras[number_of_era + 1].forms[0]
        sources = list(_sources(history, used, era, refuses=number_of_era == start))
        if not sources and not is_last:
            continue
        foldings.append(
            PlannedFold(
                dataset=now.form.dataset,
                seq=seq,
                after=after,
                base=None if foldings else base,
                base_columns=foldings[-1].columns if foldings else columns_of(reached[begins]) if base else (),
                rekeyed=era.forms[0] if number_of_era > start and (foldings or base) else None,
                form=form,
                columns=columns_of(form) if is_last else _numbered_columns(form, era.forms[0]),
                sources=sources,
                bytes=sum(file.bytes for file in used),
                rows=sum(_rows_after(file, after) for file in used),
            )
        )
    return foldings


def _begin(
    history: FoldHistory, reached: Sequence[NumberedForm], bases: Iterable[StateVersion], seq: int
) -> tuple[StateVersion | None, int, int]:
    """Return the state with which the folds begin, the index of its form, and the seq before the first change."""
    at = {form.form.id: number for number, form in enumerate(reached)}
    whole = history.whole_since or FullBackfill(0, 0)
    fit = (b for b in bases if whole.upto <= b.seq <= seq and b.form_id in at)
    base = max(fit, key=lambda b: b.seq, default=None)
    begins, after = (at[base.form_id], base.seq) if base else (0, whole.since)
    unclear = [number for number in range(begins + 1, len(reached)) if reached[number].unclear]
    if not unclear:
        return base, begins, after
    since = max((backfill.since for backfill in history.backfills if backfill.upto <= seq), default=None)
    if since is None or since < after:
        raise _unclear(reached[unclear[-1]])
    return None, unclear[-1], since


_JUMPED = 10**12
"""A file spans more seqs than this only if the log has jumped. Then its seqs say nothing about its number of rows."""


def _rows_after(file: ChangeFile, after: int) -> int:
    """Return the number of changes after a seq, about: a merged file may begin long before that seq."""
    span = file.last_seq - file.first_seq + 1
    if span > _JUMPED:
        return file.rows
    return ceil(file.rows * min(span, file.last_seq - after) / span)


def columns_of(form: NumberedForm) -> list[StateColumn]:
    """Return the columns of a form, as a state has them."""
    names = form.form.file_names
    return [StateColumn(form.numbers[column.name], names[column.name], column.type) for column in form.form.columns]


def _numbered_columns(form: NumberedForm, other: NumberedForm) -> list[StateColumn]:
    """Return the columns of a form, and further columns of another form, under distinct names."""
    types = {each.numbers[column.name]: column.type for each in (other, form) for column in each.form.columns}
    return [StateColumn(number, f"column_{number}", kind) for number, kind in types.items()]


@dataclass(frozen=True)
class _KeyEra:
    """Successive forms under which a row keeps its record_pk. `since`: the era's first place; None in the first era."""

    forms: Sequence[NumberedForm]
    bounds: Sequence[tuple[NumberedForm, ReplicationPlace | None, ReplicationPlace | None]]

    @property
    def since(self) -> ReplicationPlace | None:
        return self.bounds[0][1]


def _eras(reached: Sequence[NumberedForm]) -> list[_KeyEra]:
    """Divide forms into eras, in order. A form without a key belongs to the era before."""
    found: list[list[int]] = []
    identity: object = None
    for at, form in enumerate(reached):
        is_another = form.key and identity is not None and form.identity != identity
        if not found or form.unclear or is_another:
            found.append([])
        if form.key:
            identity = form.identity
        found[-1].append(at)
    eras = []
    for group in found:
        bounds = [
            (
                reached[at],
                reached[at].place if at else None,
                reached[at + 1].place if at + 1 < len(reached) else None,
            )
            for at in group
        ]
        eras.append(_KeyEra([reached[at] for at in group], bounds))
    return eras


def _sources(
    history: FoldHistory, files: Sequence[ChangeFile], era: _KeyEra, *, refuses: bool
) -> Iterator[ChangeSource]:
    """Yield the changes of an era in the files. With `refuses`, older changes make the fold fail."""
    tables = sorted({(epoch, oid) for (_, epoch), oid in history.table.oids.items()})
    groups: dict[object, tuple[ChangeFile, list[ChangeReading], list[str]]] = {}
    for file in files:
        readings = list(_readings(history, file, era, refuses=refuses))
        if readings:
            group = file.version, tuple(file.columns.items()), tuple(map(repr, readings))
            groups.setdefault(group, (file, readings, []))[2].append(file.path)
    for file, readings, paths in groups.values():
        yield ChangeSource(file.version, file.columns, paths, tables, readings)


def _readings(history: FoldHistory, file: ChangeFile, era: _KeyEra, *, refuses: bool) -> Iterator[ChangeReading]:
    if file.version == layout.UNTYPED:
        if refuses or era.since is None:
            yield ChangeReading(None, None, {}, has_key=True)
        return
    low, high = _places(history.table, file)
    since = era.since
    if refuses and since is not None and (low is None or low < since):
        why = f"{file.dataset} has changes from before its key or columns changed, written to the log after that"
        yield ChangeReading(None, since, {}, has_key=True, refused=f"{why}; {era.forms[0].remedy}")
    names = history.file_names.get((file.dataset, file.version), {})
    kept: list[ChangeReading] = []
    for form, begin, end in era.bounds:
        if (high is not None and begin is not None and begin > high) or (
            low is not None and end is not None and end <= low
        ):
            continue
        numbers = {
            names.get(name, name): number
            for name, number in form.numbers.items()
            if names.get(name, name) in file.columns
        }
        reading = ChangeReading(begin, end, numbers, has_key=bool(form.key))
        if kept and (kept[-1].numbers, kept[-1].has_key) == (numbers, reading.has_key):
            reading = replace(kept.pop(), until=end)
        kept.append(reading)
    for reading in kept:
        yield replace(
            reading,
            since=None if low is not None and reading.since is not None and reading.since <= low else reading.since,
            until=None if high is not None and reading.until is not None and reading.until > high else reading.until,
        )


def _places(table: LinkedTable, file: ChangeFile) -> tuple[ReplicationPlace | None, ReplicationPlace | None]:
    """Return the least and the greatest place of a change in a file; None: not known."""
    source = next((form.place.source for form in table.forms if form.source_id == file.source_id), None)
    if source is None or file.source_epoch is None or file.first_lsn is None or file.last_lsn is None:
        return None, None
    epoch = source, file.source_epoch
    return ReplicationPlace(*epoch, file.first_lsn, file.first_idx or 0), ReplicationPlace(
        *epoch, file.last_lsn, file.last_idx or 0
    )


def _unclear(form: NumberedForm) -> UnclearHistoryError:
    return UnclearHistoryError(
        f"which columns of {form.table} are the same as before is not known ({', '.join(form.unclear)}): their table"
        f" was altered while the server did not see how; {form.remedy}"
    )


def buckets_for(rows: int, each: int | None = None) -> int:
    """Return the number of buckets for `rows`, a power of two; `each`: rows of a bucket."""
    wanted = ceil(rows / (each or ROWS_PER_BUCKET))
    return 1 << max(0, wanted - 1).bit_length()


def buckets_of(before: tuple[int, int] | None, live: int, each: int | None = None) -> int:
    """Return the next version's number of buckets: as before, unless the table has grown.

    `before`: rows and buckets of the version before. `live`: rows of it that changed. `each`: rows of a bucket.
    """
    if before is None:
        return buckets_for(live, each)
    rows = max(before[0], live)
    return buckets_for(rows, each) if rows > GROWN * (each or ROWS_PER_BUCKET) * before[1] else before[1]


def own_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a file of changes that come from its table."""
    return {name: spark for name, spark in columns.items() if name not in OURS}
