"""Names Iceberg tables: `changes.<schema>.<table>` and `current.<schema>.<table>`. Pure."""

from __future__ import annotations

from lake.storage import layout

Identifier = tuple[str, ...]
"""Namespaces, then the table's name."""
FORMAT = "iceberg"
"""The name of Iceberg among the formats of a lake."""
FOLDER = "iceberg"
"""The folder of the metadata in the lake."""
CHANGES = "changes"
CURRENT = "current"


def is_wanted(formats: str) -> bool:
    """Return True if Iceberg is one of these formats, which are separated by commas."""
    return FORMAT in formats.split(",")


def of_changes(dataset: str, version: int) -> Identifier:
    """Return the identifier for changes of a schema version. Version 2 is in the name: `orders@2`."""
    identifier = _identifier(CHANGES, dataset)
    return identifier if version == 1 else (*identifier[:-1], f"{identifier[-1]}@{version}")


def of_current(dataset: str) -> Identifier:
    """Return the identifier for the current state of the table with that dataset."""
    return _identifier(CURRENT, dataset)


def location(identifier: Identifier, unique: str) -> str:
    """Return the folder of an Iceberg table in the lake. `unique`: distinguishes successive tables of one name."""
    kind, *rest = identifier
    return f"{FOLDER}/{kind}/{'.'.join(rest)}/{unique}"


def folder(metadata: str) -> str:
    """Return the folder of an Iceberg table, by the location of its metadata."""
    return metadata.rpartition("/metadata/")[0]


def namespace(identifier: Identifier) -> str:
    """Return the namespace of an identifier as catalogs in a database write it."""
    return ".".join(identifier[:-1])


def _identifier(kind: str, dataset: str) -> Identifier:
    if dataset == layout.MESSAGES:
        return kind, dataset
    schema, dot, table = dataset.partition(".")
    return (kind, schema, table) if dot else (kind, dataset)
