"""Break the appliers on purpose, one way at a time, in a copy, and see which directed test notices, and when.

python -m tests.torture.followers.mutations [--only NAME]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.torture.faults.mutations import Edit, Mutation, apply, copy, directed

SQL = "pipeline/followers/applying/sql"
TESTS = "tests/integration/followers"
APPLYING, MODEL = f"{TESTS}/applying/test_applying.py", f"{TESTS}/applying/test_model.py"


def _mutation(name: str, test: str, *edits: Edit) -> Mutation:
    return Mutation(name, edits, (), (), test)


MUTATIONS = (
    _mutation(
        "position outside of the transaction",
        f"{APPLYING}::test_nothing_stays_of_a_transaction_whose_session_is_killed",
        Edit("applier", "import contextmanager\n", "import contextmanager, nullcontext\n"),
        Edit(
            "applier:LogApplier._apply", "        with self._follower.transaction():\n", "        with nullcontext():\n"
        ),
    ),
    _mutation(
        "no compare-and-set",
        f"{APPLYING}::test_the_second_of_two_appliers_is_turned_away",
        Edit(
            f"{SQL}/move_position.sql",
            "    and source_epoch = %(epoch_before)s and seq = %(seq_before)s and generation = %(generation)s"
            " and released is null\n",
            "",
        ),
    ),
    _mutation(
        "a batch that ends inside a transaction",
        MODEL,
        Edit(f"{SQL}/next_pass.sql", "coalesce(max(seq) filter (where ends), max(seq))", "max(seq)"),
        Edit(f"{SQL}/next_pass.sql", "l.ends as whole", "true as whole"),
    ),
    _mutation(
        "inserts before deletes",
        MODEL,
        Edit(
            "sets:_SetWriter.run",
            '        if self._given.has("delete"):\n            self._change("delete", statements.delete)\n',
            "",
        ),
        Edit(
            "sets:_SetWriter.run",
            "        if self._moves:\n            self._put()\n",
            "        if self._moves:\n            self._put()\n"
            '        if self._given.has("delete"):\n            self._change("delete", statements.delete)\n',
        ),
    ),
    _mutation(
        "no fallback on a unique violation",
        MODEL,
        Edit(
            "sets:write_sets",
            "        if not given.statements.table.key:\n            raise",
            "        if True:\n            raise",
        ),
    ),
    _mutation(
        "a key change not split",
        MODEL,
        Edit(
            "rendering:left_pk",
            '    if not table.key:\n        return sql.SQL("null::text")\n',
            '    if table:\n        return sql.SQL("null::text")\n',
        ),
    ),
    _mutation(
        "own columns lost by the fallback",
        f"{APPLYING}::test_columns_of_its_own_stay_with_their_rows",
        Edit(
            "sets:_SetWriter.__init__",
            "(bool(self._statements.table.own) or not given.are_whole",
            "(not given.are_whole",
        ),
    ),
    _mutation(
        "a copy that starts at the head instead of before S",
        f"{TESTS}/copying/test_copying.py::test_changes_of_a_copied_table_are_applied_while_the_next_one_waits",
        Edit(
            "beginning:copy_tables",
            " if table not in refused], stop.wait)\n",
            " if table not in refused], stop.wait)\n"
            '        [(seq,)] = log.execute("select coalesce(max(seq), 0) from public.sequin_events").fetchall()\n'
            '        follower.execute("update pipeline_follower.position set seq = %s", (seq,))\n',
        ),
    ),
    _mutation(
        "a change before complete_seq that stops the follower",
        f"{APPLYING}::test_while_a_table_is_filled_nothing_is_missing",
        Edit("rendering:lenient", " or e.seq <= {})", " or false and e.seq <= {})"),
    ),
    _mutation(
        "synchronous_commit off",
        "tests/integration/postgres/test_session_settings.py::test_what_we_commit_is_durable",
        Edit(
            "session_settings",
            "pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off'",
            "false",
        ),
    ),
    _mutation(
        "retention not waiting for a paused follower",
        f"{TESTS}/test_registry.py::test_retention_waits_for_a_follower_and_names_it",
        Edit(
            "pipeline/log/sql/needing_readers.sql",
            "needs_after is not null\n",
            "needs_after is not null and remedy not like '%%resume%%'\n",
        ),
    ),
    _mutation(
        "a missing row skipped",
        f"{APPLYING}::test_a_missing_row_stops_it_before_that_transaction",
        Edit(
            "sets:_SetWriter._change",
            "        if (seq := self._given.send(query, operation)) is not None:\n",
            "        if (seq := self._given.send(query, operation)) is not None and not query:\n",
        ),
    ),
    _mutation(
        "what is shared is of another place",
        f"{TESTS}/sharing/test_sharing.py",
        Edit(
            "pipeline/followers/sharing/stream.py",
            "            if (kept.planned.after, kept.continues) == here:\n",
            "            if kept.planned.after >= here[0]:\n",
        ),
    ),
    _mutation(
        "what is shared breaks off unnoticed",
        f"{TESTS}/sharing/test_sharing.py::test_a_pass_that_breaks_off_is_read_again",
        Edit(
            "pipeline/followers/sharing/stream.py",
            "            last = encode(BrokenPass())\n",
            "            last = encode(PassEnd())\n",
        ),
    ),
)


def run_each(mutations: Sequence[Mutation], prog: str, description: str | None) -> int:
    """The command: exit status 1 when a mutation was not caught by its test."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--only", choices=[mutation.name for mutation in mutations])
    only, missed = parser.parse_args().only, 0
    for mutation in mutations:
        if only not in (None, mutation.name):
            continue
        with tempfile.TemporaryDirectory(prefix="wal-mutation-") as name:
            copy(Path(name))
            apply(Path(name), mutation)
            said = directed(Path(name), mutation, every=False)
        missed += said.startswith("NOT")
        print(f"{mutation.name}: {said}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(run_each(MUTATIONS, "tests.torture.followers.mutations", __doc__))
