"""`pipeline verify`: check that the log keeps its rules, or with --content that it agrees with the source."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.errors import ConfigError
from pipeline.terminal import json_values
from pipeline.terminal.command import Json, load, output
from pipeline.wal import lsn

if TYPE_CHECKING:
    from pipeline.config.settings import Config
    from pipeline.operate.verify.verifications import ContentReport

Tables = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE]...", help="With --content: compare only these tables.")
]
WithContent = Annotated[bool, typer.Option("--content", help="Compare the log with the rows of the source.")]
Sample = Annotated[float | None, typer.Option(metavar="PERCENT", help="With --content: compare a part of the rows.")]
ShowValues = Annotated[bool, typer.Option("--show-values", help="With --content: also show the values that differ.")]
FromSeq = Annotated[int | None, typer.Option(min=1, help="Begin at this seq; not with --content.")]
RangeRows = Annotated[int | None, typer.Option("--range", min=1, help="The most rows that one statement reads.")]
RANGE_ROWS = 500_000


def verify(
    context: typer.Context,
    tables: Tables = None,
    as_json: Json = False,
    content: WithContent = False,
    sample: Sample = None,
    show_values: ShowValues = False,
    from_seq: FromSeq = None,
    range_rows: RangeRows = None,
) -> int:
    """Check the order and completeness of the log; or, with --content, compare the log with the rows of the source.

    If rows break a rule or differ, list them and exit 1.
    """
    from pipeline.postgres import databases

    _require_fitting(
        {"TABLE": tables, "--sample": sample, "--show-values": show_values},
        {"--from-seq": from_seq, "--range": range_rows},
        content=content,
    )
    if sample is not None and not 0 < sample <= 100:
        raise ConfigError(f"--sample {sample:g} is not above 0 and at most 100 (percent)")
    config = load(context, "verify")
    with databases.existing(config) as config:
        if content:
            return _content(config, tables or [], (sample or 100) / 100, as_json=as_json, values=show_values)
        return _rules(config, from_seq or 1, range_rows or RANGE_ROWS, as_json)


def _require_fitting(of_content: dict[str, object], of_rules: dict[str, object], *, content: bool) -> None:
    if not content and (given := [name for name, value in of_content.items() if value]):
        raise ConfigError(f"{' and '.join(given)}: only with --content, which compares rows with the source")
    if content and (given := [name for name, value in of_rules.items() if value is not None]):
        raise ConfigError(f"{' and '.join(given)}: not with --content, which reads every row")


def _rules(config: Config, from_seq: int, range_rows: int, as_json: bool) -> int:
    from pipeline.cli.render.verify import progress_bar, show_verification
    from pipeline.operate.verify import verify as verification

    with progress_bar() as on_range:
        found = verification.run(config, from_seq, range_rows, on_range)
    output({"ok": found.ok, **json_values.as_json(found)}, as_json, lambda: show_verification(found))
    return 0 if found.ok else 1


def _content(config: Config, tables: list[str], share: float, *, as_json: bool, values: bool) -> int:
    from pipeline.cli.render.content import progress_bar, show_content
    from pipeline.operate.verify import content, verifications

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the program `timeout` sends SIGTERM
    with progress_bar() as on_progress:
        found = content.run(config, tables, share, on_progress, asked_by=verifications.COMMAND)
    output(_as_json(found, values=values), as_json, lambda: show_content(found, values=values))
    return 0 if found.ok else 1


def _as_json(found: ContentReport, *, values: bool) -> dict[str, Any]:
    """Return the result for JSON. `values`: with the values that differ."""
    shown: dict[str, Any] = json_values.as_json(found)
    through = found.verified_through
    shown["verified_through"] = None if through is None else lsn.show(through)
    shown["verified_through_bytes"] = through
    for table in shown["tables"]:
        for difference in table["differences"]:
            for value in difference["values"]:
                if not values:
                    del value["source"], value["log"]
    return shown
