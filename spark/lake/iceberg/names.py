"""What Iceberg tables are called: `changes.<schema>.<table>` and `current.<schema>.<table>`. Pure."""

from __future__ import annotations

from lake.storage import layout

Identifier = tuple[str, ...]
"""Namespaces, then the table's name."""
FORMAT = "iceberg"
"""What it is called among the formats of a lake."""
FOLDER = "iceberg"
"""Where in the lake the metadata is."""
CHANGES = "changes"
CURRENT = "current"


def is_wanted(formats: str) -> bool:
    """Whether it is one of these formats, which are separated by commas."""
    return FORMAT in formats.split(",")


def of_changes(dataset: str, version: int) -> Identifier:
    """Changes of one schema version; versions but the first have their number in the name: `orders@2`."""
    identifier = _identifier(CHANGES, dataset)
    return identifier if version == 1 else (*identifier[:-1], f"{identifier[-1]}@{version}")


def of_current(dataset: str) -> Identifier:
    """The current state of the table that is called so."""
    return _identifier(CURRENT, dataset)


def location(identifier: Identifier, unique: str) -> str:
    """The folder of an Iceberg table in the lake. `unique`: of all that were ever called so, which."""
    kind, *rest = identifier
    return f"{FOLDER}/{kind}/{'.'.join(rest)}/{unique}"


def folder(metadata: str) -> str:
    """The folder of an Iceberg table, by the location of its metadata."""
    return metadata.rpartition("/metadata/")[0]


def namespace(identifier: Identifier) -> str:
    """As catalogs in a database write it."""
    return ".".join(identifier[:-1])


def _identifier(kind: str, dataset: str) -> Identifier:
    if dataset == layout.MESSAGES:
        return kind, dataset
    schema, dot, table = dataset.partition(".")
    return (kind, schema, table) if dot else (kind, dataset)
