"""A pipeline.toml to begin with: every setting with what it means and its default, commented out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config import secret_files
from pipeline.config.settings import SECRETS, Config, variable
from pipeline.errors import ConfigError

_WIDTH = 100
_HEAD = (
    "Settings of the WAL Pipeline Server. Each has its default: remove the # in front of one to change it. "
    "A flag and an environment variable, such as PIPELINE_SLOT for slot, win over this file."
)
_GROUPS = {
    "source_dsn": "The databases",
    "slot": "Slot, tables and rows",
    "events_table": "The log",
    "catchup_threshold": "Catching up after a backlog",
    "export_dir": "Exports to the lake",
    "http_host": "HTTP and gRPC",
    "wires": "Clients of other systems",
    "accept": "The server",
}
"""The headings, each with the setting that it stands before: settings are in the order of their fields.

They are no sections: to enable a key, you would have to enable the head of its section, too.
"""

_EXAMPLES = {
    "tables": '["public.orders", "shop.*"]',
    "routes": '[{tables = ["public.audit_*"], events_table = "public.audit_events"}]',
    "catchup_max_slots": "4",
    "http_origins": '["https://app.example.com"]',
    "spark": '{"spark.executor.memory" = "2g"}',
    "wires": '["pgdeltastream"]',
}
"""In TOML, where the default does not show how a value is written."""


def groups() -> dict[str, list[str]]:
    """Return the settings under their headings."""
    found: dict[str, list[str]] = {heading: [] for heading in _GROUPS.values()}
    heading = ""
    for name in Config.model_fields:
        heading = _GROUPS.get(name, heading)
        found[heading].append(name)
    return found


def text() -> str:
    """Return the whole file. It states defaults only, and can be loaded as it is."""
    parts = [_comment(_HEAD)]
    for heading, names in groups().items():
        parts.append(f"# --- {heading} ---")
        parts += ["\n".join(_setting(name)) for name in names]
    return "\n\n".join(parts) + "\n"


def write(path: Path, *, replace: bool) -> None:
    """Write it to a new file; with `replace`, also over one that is there. Raises ConfigError if that is needed."""
    try:
        with path.open("w" if replace else "x", encoding="utf-8") as stream:
            stream.write(text())
    except FileExistsError:
        raise ConfigError(f"{path} exists already and was not changed; add --force to replace it") from None


def _setting(name: str) -> Iterator[str]:
    field = Config.model_fields[name]
    yield _comment(_sentence(str(field.description)))
    if name in _EXAMPLES:
        yield f"# For example {_EXAMPLES[name]}"
    if name in SECRETS:
        yield _comment(
            "A secret: if you set it here, no other user may read this file. Better, "
            f"{secret_files.naming(variable(name))} names a file that holds it."
        )
    yield f"#{name} = {_value(field.default)}"


def _sentence(description: str) -> str:
    return f"{description[0].upper()}{description[1:]}."


def _comment(sentences: str) -> str:
    return textwrap.fill(
        sentences, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )


def _value(default: Any) -> str:
    """Return a default in TOML. None is an empty text, which means "not given" for settings without a default."""
    if default is None:
        return '""'
    if isinstance(default, tuple):
        return json.dumps(list(default))
    return json.dumps(str(default) if isinstance(default, Path) else default, ensure_ascii=False)
