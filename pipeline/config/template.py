"""Writes the pipeline.toml of `pipeline init`: every setting with its meaning and its default, commented out."""

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
    "Settings of the WAL Pipeline Server with their defaults. To change a setting, remove the # in front of it. "
    "A flag or an environment variable, such as PIPELINE_SLOT for slot, overrides this file."
)
_GROUPS = {
    "source_dsn": "The databases",
    "slot": "Slot, tables and rows",
    "events_table": "The log",
    "catchup_threshold": "Backlogs and existing rows",
    "export_dir": "Exports to the lake",
    "http_host": "HTTP and gRPC",
    "wires": "Clients of other systems",
    "accept": "The server",
}
"""The heading of each group of settings, by the first setting of the group. Settings keep the order of their fields.

Headings are comments. With TOML sections, a user who enables a key would also have to enable its section.
"""

_EXAMPLES = {
    "tables": '["public.orders", "shop.*"]',
    "routes": '[{tables = ["public.audit_*"], events_table = "public.audit_events"}]',
    "catchup_max_slots": "4",
    "http_origins": '["https://app.example.com"]',
    "spark": '{"spark.executor.memory" = "2g"}',
    "wires": '["pgdeltastream"]',
}
"""Examples in TOML for settings whose default does not show how a value is written."""


def groups() -> dict[str, list[str]]:
    """Return the names of the settings by their heading."""
    found: dict[str, list[str]] = {heading: [] for heading in _GROUPS.values()}
    heading = ""
    for name in Config.model_fields:
        heading = _GROUPS.get(name, heading)
        found[heading].append(name)
    return found


def text() -> str:
    """Return the complete text of the file, which can be loaded unchanged and then sets nothing."""
    parts = [_comment(_HEAD)]
    for heading, names in groups().items():
        parts.append(f"# --- {heading} ---")
        parts += ["\n".join(_setting(name)) for name in names]
    return "\n\n".join(parts) + "\n"


def write(path: Path, *, replace: bool) -> None:
    """Write the template to a new file; `replace`: or to an existing one. Raises ConfigError if the file exists."""
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
            "A secret: if you set it here, make this file unreadable for other users. Better: set "
            f"{secret_files.naming(variable(name))} to the name of a file that contains it."
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
