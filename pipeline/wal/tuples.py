"""Encodes new rows directly from pgoutput's TupleData, all columns at once: the worker spends most of its time here.

wal2json.py writes rows in another form in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Generic, TypeVar

from orjson import dumps

from pipeline.errors import DecodeError
from pipeline.wal import encoding
from pipeline.wal.encoding import EncodedRow, RowEncoder
from pipeline.wal.jsonb import DEEP_SIZE
from pipeline.wal.messages import Row
from pipeline.wal.record_key import LONGEST_KEY

_u32 = Struct(">I").unpack_from
_TEXT, _NULL, NINE = ord("t"), ord("n"), ord("9")
_SHORT = b"t\0\0\0"
"""The first bytes of a column of less than 256 bytes, without the last byte of its length. Text has no NUL."""

PLAIN = frozenset({1082, 1083, 1114, 1184, 1186, 1266, 2950, 650, 869, 774, 829, 1560, 1562})
"""Types whose text is ASCII without characters that JSON escapes: dates, times, intervals, uuid, addresses, bits."""

_TEMPLATES = 64
"""The most sets of NULL columns that are cached for a relation."""

EncodedFields = tuple[bytes, bytes, bytes | None, list[str] | None] | EncodedRow
"""The fields of EncodedRow; naming them takes as long as writing a column."""
Output = TypeVar("Output")


class RowTemplates(dict[tuple[int, ...], list[bytes]]):
    """The constant texts around a row's values, by the indexes of its NULL columns; values go to the odd places."""

    def __init__(self, make: Callable[[tuple[int, ...]], list[bytes]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, nulls: tuple[int, ...]) -> list[bytes]:
        if len(self) >= _TEMPLATES:
            self.clear()
        template = self[nulls] = self._make(nulls)
        return template


class TupleWriter(ABC, Generic[Output]):
    """Reads TupleData, all columns at once; subclasses write a row of texts and NULLs in some form."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._count = width.to_bytes(2, "big")
        self._parts = width + 1

    @abstractmethod
    def _write(self, row: Row, nulls: tuple[int, ...]) -> Output:
        """Write the row, which may be changed; `nulls`: indexes of its NULL columns. May raise UnicodeDecodeError."""

    def _looks_odd(self, row: Row) -> bool:
        """True if a row of more than DEEP_SIZE bytes needs a closer look."""
        return False

    def encode(self, data: bytes, at: int) -> Output | None:
        """Encode the TupleData at `at`, which must end where `data` ends.

        Returns None if the tuple has more than texts and NULLs, is torn, or needs a closer look. Then the caller must
        decode the message with `pgoutput.decode` and write it in another way.
        """
        if not data.startswith(self._count, at):
            return None
        parts = data[at + 2 :].split(_SHORT)
        nulls: tuple[int, ...] = ()
        try:
            if len(parts) == self._parts and not parts[0]:
                del parts[0]
                row: Row = [part[1:] for part in parts if part[0] == len(part) - 1]
            else:
                row = _columns(parts)
                if None in row:
                    nulls = tuple([i for i, value in enumerate(row) if value is None])
                if len(data) > DEEP_SIZE and self._looks_odd(row):
                    return None
            if len(row) != self._width:
                return None
            return self._write(row, nulls)
        except (IndexError, StructError, UnicodeDecodeError):
            return None


class TupleEncoder(TupleWriter[EncodedFields]):
    """`RowEncoder.encode` for rows of texts and NULLs, directly from TupleData: takes about half the time."""

    def __init__(self, encoder: RowEncoder) -> None:
        super().__init__(len(encoder.columns))
        self._encoder = encoder
        columns = encoder.columns
        self._names = [name for name, _ in columns]
        self._plain = [oid in PLAIN for _, oid in columns]
        self._full = self._template(())
        self._templates = RowTemplates(self._template)
        encoders = [encoding.encoder_for(oid) for _, oid in columns]
        self._strings = [i for i, encode in enumerate(encoders) if encode is encoding.string and not self._plain[i]]
        self._numbers = [i for i, encode in enumerate(encoders) if encode is encoding.number]
        # jsonb is embedded as it is: a value that may be too deep is left to RowEncoder
        in_loops = (encoding.string, encoding.number, encoding.as_is, encoding.embedded_jsonb)
        self._other_encoders = [(i, encode) for i, encode in enumerate(encoders) if encode not in in_loops]
        self._json = [i for i, (_, oid) in enumerate(columns) if oid in (encoding.JSON, encoding.JSONB)]
        self._json_always = any(oid == encoding.JSON for _, oid in columns)
        self._single_key = encoder.key[0] if len(encoder.key) == 1 else None

    def _looks_odd(self, row: Row) -> bool:
        return bool(self._encoder.deep(row))

    def encode_texts(self, row: Row, size: int) -> EncodedFields:
        """Encode a row of texts and NULLs, with at most `size` bytes together.

        Raises DecodeError for a row of another width, or that is not UTF-8.
        """
        if len(row) != self._width:
            raise DecodeError(f"a row of {len(row)} columns for a relation of {self._width}")
        if size > DEEP_SIZE and self._encoder.deep(row):
            return self._encoder.encode(row)
        nulls = tuple([i for i, value in enumerate(row) if value is None]) if None in row else ()
        try:
            return self._write(row, nulls)
        except UnicodeDecodeError as error:
            raise DecodeError(f"a value is not UTF-8: {error}") from error

    def _write(self, row: Row, nulls: tuple[int, ...]) -> EncodedFields:  # noqa: C901  a call costs as much as a column
        """Write the row; `row` is changed."""
        exact = None
        key = row[self._single_key] if self._single_key is not None else None
        # A key of one short text is that text: a call of record_key would cost 3 % of a row.
        if key is None or len(key) > LONGEST_KEY:  # type: ignore[arg-type]
            key = self._encoder.key_of(row)
        for i in self._json:
            if self._json_always or row[i] == b"null":
                exact = self._encoder.exact(row)
                break
        for i in self._strings:
            if (value := row[i]) is not None:
                row[i] = dumps(value.decode())  # type: ignore[union-attr]
        for i in self._numbers:
            if (value := row[i]) is not None and value[-1] > NINE:  # type: ignore[index]
                row[i] = b'"' + value + b'"'  # type: ignore[operator]
        for i, encode in self._other_encoders:
            if (value := row[i]) is not None:
                row[i] = encode(value)  # type: ignore[arg-type]
        if nulls:
            pieces = self._templates[nulls].copy()
            pieces[1::2] = [value for value in row if value is not None]  # type: ignore[misc]
        else:
            pieces = self._full.copy()
            pieces[1::2] = row  # type: ignore[assignment]
        return key, b"".join(pieces), exact, None  # type: ignore[return-value]

    def _template(self, nulls: tuple[int, ...]) -> list[bytes]:
        """Return the constant texts around the values of a row with NULL in these columns; values go to the odd
        places.
        """
        template = [b"{"]
        for i, name in enumerate(self._names):
            template[-1] += (b"," if i else b"") + dumps(name) + b":"
            if i in nulls:
                template[-1] += b"null"
            else:
                quote = b'"' if self._plain[i] else b""
                template[-1] += quote
                template += [b"", quote]
        template[-1] += b"}"
        return template


def _columns(parts: list[bytes]) -> Row:
    """Return all columns of a tuple that was split at its short texts. Raises IndexError if a column is torn, or is
    neither NULL nor text.
    """
    row: Row = []
    if parts[0]:
        _append_rest(parts[0], 0, row)
    del parts[0]
    for part in parts:
        end = part[0] + 1
        row.append(part[1:end])
        if end != len(part):
            _append_rest(part, end, row)
    return row


def _append_rest(part: bytes, at: int, row: Row) -> None:
    """Append the columns of a part from `at` on, which are NULLs and texts of 256 bytes or more."""
    size = len(part)
    while at != size:
        kind = part[at]
        if kind == _NULL:
            row.append(None)
            at += 1
        elif kind == _TEXT:
            start = at + 5
            at = start + _u32(part, at + 1)[0]
            row.append(part[start:at])
        else:
            raise IndexError(at)
