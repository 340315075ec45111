"""How pages of the docs are read as steps, and how what they show is compared with what is printed."""

from __future__ import annotations

from tests.pages.blocks import FencedBlock, PageMark, commands, steps
from tests.pages.output import difference

PAGE = """
<!-- given: own Postgres -->
Text.

<!-- type: shop -->
```console
$ pipeline slots delete pipeline \\
>   --force    # it asks
deleted
$ ls
```
```text
other
```

- Item:
  ```sql
  -- it.sql
  select 1;
  ```

```html
<!-- it.html -->
```
"""


def test_a_page_is_read_as_marks_blocks_and_commands():
    given, console, text, sql, html = list(steps(PAGE))
    assert given == PageMark(2, "given", "own Postgres")
    assert isinstance(console, FencedBlock) and console.marks == {"type": "shop"} and not console.follows
    delete, ls = commands(console)
    assert delete.text == "pipeline slots delete pipeline \\\n  --force    # it asks"
    assert (delete.shown, ls.text, ls.shown) == (["deleted"], "ls", [])
    assert isinstance(text, FencedBlock) and text.follows
    assert isinstance(sql, FencedBlock) and sql.file == "it.sql"
    assert isinstance(html, FencedBlock) and html.file == "it.html"


def test_numbers_times_positions_and_padding_may_differ():
    shown = ' seq | total\n-----+-------\n   1 | 12.50\n(1 row)\n0/15A, 3 ms, {"id": 1, "n": 2}'
    printed = 'seq | total\n--+--\n 4,711 | 3\n\n(2 rows)\n1/FF00, 2 min 1 s, {"id": 17, "n": 1,234}\n'
    assert difference(shown.splitlines(), printed) is None
    assert difference(["at 2026-01-02 10:00:00+00"], "at 2026-11-30 08:12:05.1+00") is None


def test_other_text_more_text_and_less_text_is_found():
    assert difference(["ok", "…", "ready"], "ok\nmore\nready\n") is None
    assert difference(["at …/home"], "at /tmp/home\n") is None
    assert difference([], "anything") is None
    assert "does not print: ready" in str(difference(["ok", "ready"], "ok\n"))
    assert "prints more" in str(difference(["ok"], "ok\nready\n"))
