"""An external REST catalog: it takes one commit for each table, so readers may see some tables before others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate
from typing import cast

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction as Creation
from pyiceberg.table import Table

from lake.errors import ExportError
from lake.iceberg.failures import FAILURES, first_line
from lake.iceberg.names import Identifier
from lake.storage.where import SCHEME, ObjectPath, parse


def open_catalog(name: str, uri: str) -> RestCatalog:
    """Open the catalog. Raises ExportError."""
    try:
        return RestCatalog(name, uri)
    except FAILURES as error:
        raise ExportError(f"the Iceberg catalog at {uri}: {first_line(error)}") from error


class RestCatalog:
    """A REST catalog, whose further settings PyIceberg reads from `PYICEBERG_CATALOG__<NAME>__…`."""

    has_renames = False
    """A REST catalog renames no tables: if two tables exchange their names, it cannot do that in one step."""

    def __init__(self, name: str, uri: str) -> None:
        self._catalog: Catalog = load_catalog(name, type="rest", uri=uri, **_store_settings())
        self._made: set[Identifier] = set()
        self.written: Mapping[str, bytes] = {}
        self.moved: Mapping[Identifier, str | None] = {}

    def load(self, identifier: Identifier, called: Identifier) -> Table:
        """Load a table as it is in the catalog."""
        return self._catalog.load_table(identifier)

    def create(self, identifier: Identifier, schema: Schema, location: str, properties: Mapping[str, str]) -> Creation:
        """Begin a new table, after a table with its name is dropped."""
        for namespace in accumulate(
            identifier[:-1], lambda outer, inner: (*outer, inner), initial=cast(Identifier, ())
        ):
            if namespace:
                self._make(namespace)
        self.drop(identifier)
        return self._catalog.create_table_transaction(identifier, schema, location, properties=dict(properties))

    def drop(self, identifier: Identifier) -> None:
        """Drop a table, if it exists."""
        try:
            self._catalog.drop_table(identifier)
        except NoSuchTableError:
            return

    def _make(self, namespace: Identifier) -> None:
        if namespace not in self._made:
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(namespace)
            self._made.add(namespace)


def _store_settings() -> dict[str, str]:
    """Return settings of the lake's store for PyIceberg; the catalog's own settings take precedence."""
    at = parse(f"{SCHEME}://any")
    assert isinstance(at, ObjectPath)  # noqa: S101  a URL
    known = {"s3.endpoint": at.endpoint, "s3.region": at.region}
    return {name: value for name, value in known.items() if value}
