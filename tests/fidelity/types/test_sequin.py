"""Every value of every type, and arrays of each, as Sequin's clients get them in Python and in Node, from 18 and 15."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import sql

from tests.fidelity.types import cases, sequin_forms
from tests.fidelity.types.cases import Case
from tests.fidelity.types.kinds import Kinds
from tests.fidelity.types.stage import Comparing
from tests.fixtures.api import answering
from tests.fixtures.browsers import required
from tests.fixtures.shuffling import move
from tests.fixtures.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("fidelity")
PROGRAM = Path(__file__).with_name("sequin_client.mjs")
FIRST = 1000
"""Of our rows; others have smaller ids."""
INTERVALS = """
    select text, (12 * extract(year from i) + extract(month from i))::bigint, extract(day from i)::bigint,
        (3600000000 * extract(hour from i) + 60000000 * extract(minute from i) + extract(microseconds from i))::bigint
    from unnest(%s::text[]) as text, cast(text as interval) as i where text !~ 'infinity'
"""
Rows = dict[str, dict[str, dict[str, str]]]
"""Table, id, column: the value's JSON."""


@dataclass(frozen=True)
class Sent:
    """Rows that two consumers wait for, and what their clients are to get."""

    url: str
    kinds: Kinds
    expected: Rows

    def all(self) -> str:
        """As one JSON text."""
        return _object(
            {table: _object({row: _object(of) for row, of in rows.items()}) for table, rows in self.expected.items()}
        )


def _object(parts: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in parts.items()) + "}"


@pytest.fixture(scope="module")
def sent(kinds: Kinds) -> Iterator[Sent]:
    stage = kinds.stage
    for client in ("python", "node"):
        tables = [f"public.{title}" for title in cases.GROUPS]
        stage.log.execute("select pipeline.create_consumer(%s, tables => %s)", [client, tables])
    stage.replicate(*kinds.inserts(FIRST))
    move(stage.shuffler)  # and the consumers have their items: what is written at once is in the log without it
    expected = {title: _rows(stage, title, kinds.groups[title]) for title in cases.GROUPS}
    with answering(stage.config.database, source_dsn=stage.config.source, wires=("sequin",)) as api:
        yield Sent(api.url, kinds, expected)
    stage.log.execute("select pipeline.drop_consumer(name) from unnest(array['python', 'node']) name")
    stage.replicate(
        *[
            sql.SQL("delete from public.{} where id >= {}").format(sql.Identifier(title), FIRST)
            for title in cases.GROUPS
        ]
    )


def _rows(stage: Comparing, title: str, columns: dict[str, Case]) -> dict[str, dict[str, str]]:
    names = [*columns, *(f"{name}_array" for name, case in columns.items() if case.nulls)]
    listed = sql.SQL(", ").join(map(sql.Identifier, names))
    query = sql.SQL("select id, {} from public.{} where id >= {} order by id")
    cursor = stage.source.execute(query.format(listed, sql.Identifier(title), FIRST))
    found = cursor.pgresult
    assert found is not None
    read = [[_text(found.get_value(row, column)) for column in range(found.nfields)] for row in range(found.ntuples)]
    intervals = _intervals(stage, [text for row in read for text in row if text and title == "Dates and times"])
    return {
        str(row[0]): {
            name: _json(stage, columns[name.removesuffix("_array")].type, name.endswith("_array"), text, intervals)
            for name, text in zip(names, row[1:], strict=True)
        }
        for row in read
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _intervals(stage: Comparing, texts: list[str]) -> dict[str, Any]:
    wanted = {each for text in texts for each in re.findall(r'[^{}",]+', text) if _is_interval(each)}
    rows = stage.source.execute(INTERVALS, [sorted(wanted)]).fetchall()
    return {text: {"months": months, "days": days, "microseconds": rest} for text, months, days, rest in rows}


def _is_interval(text: str) -> bool:
    return re.fullmatch(r"([+-]?\d+ (years?|mons?|days?) ?)*([+-]?\d{2,}:\d\d:\d\d(\.\d+)?)?", text) is not None


def _json(stage: Comparing, type_name: str, is_array: bool, text: str | None, intervals: dict[str, Any]) -> str:
    if text is None:
        return "null"
    if is_array:
        return _array(_elements(stage, type_name, text), type_name, intervals)
    if type_name in ("public.integers", "public.moods"):
        return _array(_elements(stage, "", text), "integer" if type_name == "public.integers" else "", intervals)
    return sequin_forms.scalar(type_name, text, intervals)


def _elements(stage: Comparing, type_name: str, text: str) -> Any:
    """The texts of an array's elements, as Postgres reads them."""
    if type_name == "box":  # the one type whose arrays have another delimiter
        quoted = re.sub(
            r"[^{};]+",
            lambda found: found[0] if found[0] == "NULL" else f'"{found[0]}"',
            text.partition("=")[2] or text,
        )
        text = quoted.replace(";", ",")
    row = stage.source.execute("select %s::text[]", [text]).fetchone()
    assert row is not None
    return row[0]


def _array(elements: Any, type_name: str, intervals: dict[str, Any]) -> str:
    if elements is None:
        return "null"
    if isinstance(elements, list):
        return f"[{','.join(_array(each, type_name, intervals) for each in elements)}]"
    return sequin_forms.element(type_name, elements, intervals)


def test_a_client_in_python_gets_every_value(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # for a document of 4,000 lists in each other
    try:
        expected = json.loads(sent.all())
        count, wrong = 0, []
        with httpx.Client(
            base_url=f"{sent.url}/api/sequin_streams/python",
            headers={"authorization": "Bearer any"},
            timeout=PATIENCE,
        ) as client:
            while data := client.post("/receive", json={"max_batch_size": 100}).json()["data"]:
                for message in data:
                    record, table = message["data"]["record"], message["data"]["metadata"]["table_name"]
                    row = expected[table][str(record.pop("id"))]
                    wrong += [
                        (table, name) for name in row.keys() | record.keys() if not _same(row[name], record[name])
                    ]
                count += len(data)
                answer = client.post("/ack", json={"ack_ids": [message["ack_id"] for message in data]})
                assert answer.json() == {"success": True}
        assert (wrong, count) == ([], sum(map(len, sent.expected.values())))
    finally:
        sys.setrecursionlimit(before)


def _same(a: Any, b: Any) -> bool:
    """Equal, and a float where that is one; -0.0 is not 0.0."""
    return a == b and (not isinstance(a, float) or repr(a) == repr(b))


def test_a_client_in_node_gets_every_value(sent: Sent, tmp_path: Path) -> None:
    file = tmp_path / "expected.json"
    file.write_text(sent.all())
    command = [required("node"), str(PROGRAM), sent.url, "node", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [str(sum(map(len, sent.expected.values())))]


@pytest.mark.parametrize("title", cases.GROUPS)
def test_each_form_is_that_of_a_value_that_was_sent(sent: Sent, title: str) -> None:
    """So what the page shows is what clients get, see the two tests before."""
    columns = sent.kinds.groups[title]
    for case in columns.values():
        names = [name for name in columns if columns[name].type == case.type]
        values = [row[name] for row in sent.expected[title].values() for name in names]
        examples = [json.dumps(json.loads(value)) for value in values if len(value) < 1000]
        assert json.dumps(json.loads(sequin_forms.of(case).example)) in examples, case.type


def test_the_page_says_what_is_proved() -> None:
    """`python -m tests.fidelity.types.sequin_forms` writes it."""
    assert sequin_forms.PART.is_current(sequin_forms.table())
