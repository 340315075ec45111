"""Break the product on purpose, one way at a time, in a copy, and see which directed fault point notices, and when.

python -m tests.torture.faults.mutations [--only NAME] [--all] [--random]
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.torture.faults import points
from tests.torture.faults.points import POINTS

ROOT = Path(__file__).parents[3]
COPIED = ("pipeline", "alembic", "spark", "tests", "pyproject.toml")
TEST = "tests/torture/test_fault_points.py::test_the_log_equals_what_was_committed_when"
RANDOM = ("-m", "tests.torture", "--minutes", "5", "--stop-at-first")
CHOICES = "tests/unit/log/staging/test_choose_path.py"
STAGING_SQL, SHUFFLE_SQL = "pipeline/log/writing/sql", "pipeline/log/shuffling/sql"
FRONTIER = "pipeline/log/staging/frontier/sql"
STATE, AGREES = f"{FRONTIER}/staging_state.sql", "tests/integration/log/staging/test_frontier.py"
SNAPSHOT = "pipeline/snapshots"
RACES = "tests/integration/snapshots/test_races.py"
JOINING = "tests/integration/snapshots/test_joining.py"
READING = ("--old",)
AT_ONCE = "tests/integration/log/writing/test_direct_path.py"
ADOPTION, ADOPTED = "pipeline/log/writing", "tests/integration/log/writing/test_adopted_segments.py"
RUNS = "tests/integration/log/writing/test_adoption_runs.py"
JUMPS = "tests/integration/log/test_seq_jumps.py"
PARTS = "tests/integration/log/writing/test_adopted_parts.py"
ROUTED = "tests/integration/log/writing/test_adoption_routes.py"
MIGRATION = "alembic/versions/0031_adoption.py"
SESSIONS = "pipeline/wires/pgdeltastream/sessions"
WIRE = "tests/acceptance/wires/pgdeltastream"

_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Edit:
    """Text `old`, which stands exactly once at a place of the product, becomes `new`.

    `place`: a file of the repository, or code by its names, "module", "module:Class" or "module:Class.method", which
    stays valid if the module moves to another folder of `pipeline/`.
    """

    place: str
    old: str
    new: str

    def find(self, folder: Path) -> tuple[Path, int, int]:
        """Return the file, and from where to where in it the place is. Raises ValueError if there is no such place."""
        if "/" in self.place:
            return folder / self.place, 0, len((folder / self.place).read_text("utf-8"))
        module, _, names = self.place.partition(":")
        paths = list((folder / "pipeline").rglob(f"{module}.py"))
        if len(paths) != 1:
            raise ValueError(f"{self.place}: pipeline/ has {len(paths)} modules named {module}, not one")
        text = paths[0].read_text("utf-8")
        node: ast.AST = ast.parse(text)
        for name in filter(None, names.split(".")):
            found = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name]
            if not found:
                raise ValueError(f"{self.place}: {paths[0].name} has no {name} there")
            node = found[0]
        lines = text.splitlines(keepends=True)
        first, last = (node.lineno, node.end_lineno) if isinstance(node, _NAMED) else (1, len(lines))
        return paths[0], sum(map(len, lines[: first - 1])), sum(map(len, lines[:last]))


@dataclass(frozen=True)
class Mutation:
    """A promise broken. `places`: where a point has to notice; all others are played with --all.

    Without a place it is for the random harness alone: what rows and tables were before is no step of a role.
    """

    name: str
    edits: tuple[Edit, ...]
    places: tuple[points.Place, ...]
    arguments: tuple[str, ...] = ()
    """For the random harness."""
    test: str = ""
    """What has to notice, where no fault point has to."""


MUTATIONS = (
    Mutation(
        "confirm before the staging commit",
        (
            Edit(
                "staging_pump:StagingPump._stage",
                "        stored = await self._writer.append(batch, durable=durable)\n"
                "        self._follow(stored)\n"
                "        if durable and stored.is_durable:\n            self._reporter.confirm(stored.position)\n",
                "        if batch.position is not None:\n            self._reporter.confirm(batch.position)\n"
                "        self._follow(await self._writer.append(batch, durable=durable))\n",
            ),
        ),
        (points.BEFORE_STAGED,),
    ),
    Mutation(
        "watermark outside the transaction",
        (
            Edit(
                "transfer:RowTransfer.finish",
                "        if upto > self.after:\n            self._set_watermark(upto)\n",
                "",
            ),
            Edit(
                "transfer:RowTransfer._set_watermark",
                '        self._batch.add_prepared("advance_watermark", query, values)\n',
                "        self._batch.eager = True\n"
                '        self._batch.add_prepared("advance_watermark", query, values)\n',
            ),
            Edit("transfer:RowTransfer._set_watermark", "def _set_watermark(", "def set_watermark("),
            Edit(
                "shuffler:Shuffler._move_batched",
                "            self._move_all(run, transfer, transfer)\n",
                "            self._move_all(run, transfer, transfer)\n"
                "        if run.upto > run.after:\n            transfer.set_watermark(run.upto)\n",
            ),
            Edit(
                "large_transactions:LargeTransactionMover.move",
                "        return self._transfers.committed(*result)\n",
                "        result[0].set_watermark(commit_lsn)\n        return self._transfers.committed(*result)\n",
            ),
        ),
        (points.SHUFFLED,),
    ),
    Mutation(
        "half-staged rows not removed at restart",
        (
            Edit(
                "worker_claim:WorkerClaim.acquire",
                "                await _drop_half_staged(connection, who, row[2])\n",
                "",
            ),
        ),
        (points.HALF_STAGED,),
    ),
    Mutation(
        "no fencing",
        (
            Edit(f"{STAGING_SQL}/store_batch.sql", " and generation = %(generation)s", ""),
            Edit(f"{STAGING_SQL}/store_position.sql", " and generation = %(generation)s", ""),
        ),
        (points.BEFORE_STAGING,),
    ),
    Mutation(
        "order by commit_lsn alone",
        # Segments of one transaction then come in any order; this is one that Postgres may choose.
        (Edit(STATE, "s.first_lsn, s.first_ordinal\n", "s.first_lsn, s.first_ordinal desc\n"),),
        (points.SECOND_INSERT, points.AHEAD),
    ),
    Mutation(
        "keepalive confirmed while a transaction is open",
        (
            Edit(
                "confirm_rule:ConfirmRule.keepalive",
                "        if not self._open:\n            self.pass_to(wal_end)\n            self.require_more()\n",
                "        self.pass_to(wal_end)\n        self.require_more()\n",
            ),
            Edit(
                "confirm_rule:ConfirmRule._target",
                "self.position if self._open or self._whole or self.held else",
                "self.position if self._whole or self.held else",
            ),
        ),
        (points.ASKED_WITH_END,),
    ),
    Mutation(
        "a position confirmed before it is stored",
        (
            Edit(
                "staging_pump:StagingPump._store",
                "        stored = await self._writer.advance(position)\n"
                "        self._follow(stored)\n"
                "        self._reporter.confirm(stored.position)\n",
                "        self._reporter.confirm(position)\n"
                "        self._follow(await self._writer.advance(position))\n",
            ),
        ),
        (points.BEFORE_MOVED_ON,),
    ),
    Mutation(
        "a shuffler that commits asynchronously",
        (
            Edit(
                "shuffler:Shuffler.__init__",
                'sql.SQL("listen {}")',
                'sql.SQL("set synchronous_commit = off; listen {}")',
            ),
        ),
        (points.SHUFFLED,),
    ),
    Mutation(
        "order by arrival instead of (lsn, idx)",
        # What another worker has staged is moved when it is there, whether all before it is or not.
        (
            Edit(
                STATE,
                "    and s.worker in (select worker from reached)\norder by s.first_lsn, s.first_ordinal\n",
                "order by s.id\n",
            ),
            Edit(STATE, "from pipeline.reached_workers", "from pipeline.replication_progress"),
        ),
        (),
        ("--catchup",),
    ),
    Mutation(
        "filled from an older event than the last",
        (Edit(f"{SHUFFLE_SQL}/fill_from_events.sql", "order by e.seq desc limit 1", "order by e.seq limit 1"),),
        (),
    ),
    Mutation(
        "names not restarted at a rewrite",
        (
            Edit(
                "continuity:next_version",
                'if old is None or (kind and kind != "renamed") or moved',
                "if old is None or moved",
            ),
        ),
        (),
    ),
    Mutation(
        "the row before is looked for under its new key",
        (Edit(f"{SHUFFLE_SQL}/unfilled_rows.sql", "then coalesce(w.previous_pk, w.record_pk)", "then w.record_pk"),),
        (),
    ),
    Mutation(
        "read without the visibility check",
        (
            Edit(
                f"{SHUFFLE_SQL}/touched_since.sql",
                "    where e.seq > %(since)s and",
                "    where false and e.seq > %(since)s and",
            ),
        ),
        (),
        READING,
        f"{RACES}::test_a_row_that_has_changed_since_it_was_read_is_left_out",
    ),
    Mutation(
        "places of ranges taken from an LSN alone",
        # What had come by when the marker was written counts as contained, visible or not.
        (Edit(f"{SNAPSHOT}/reader.py", "self._samples.before(facts.snapshot, since)", "self._samples.take()[1]"),),
        (),
        (*READING, "--faults", "invisible commits"),
        f"{RACES}::test_rows_already_in_the_log_are_found_with_an_older_snapshot",
    ),
    Mutation(
        "table not started over after VACUUM FULL",
        (
            Edit(f"{SNAPSHOT}/shapes.py", "if file is not None and facts.file != file:", "if not facts.file:"),
            Edit(
                f"{SNAPSHOT}/coordinator.py",
                "if backfill.files.get(str(each.oid), each.file) != each.file]",
                "if not each.file]",
            ),
        ),
        (),
        READING,
        f"{RACES}::test_a_table_that_was_written_anew_is_read_from_its_beginning",
    ),
    Mutation(
        "unresolved TOAST of a moved row not read again",
        (Edit("unresolved:keys", ".fetchall() if None not in row[0]]", ".fetchall() if not row[0]]"),),
        (),
        READING,
        f"{RACES}::test_a_row_that_moves_to_where_reading_has_been_is_read_by_its_key",
    ),
    Mutation(
        "progress of a range stored before its rows",
        (
            Edit(
                "range_writer:RangeWriter.add",
                "        with self._connection.cursor() as cursor, cursor.copy(copy) as target:\n"
                '            target.write(b"".join((HEADER, *staged, TRAILER)))\n',
                '        late = copy, b"".join((HEADER, *staged, TRAILER))\n'
                '        self.late = [*getattr(self, "late", ()), late]\n',
            ),
            Edit(
                "range_writer:RangeWriter.__exit__",
                '            self._connection.execute("rollback")\n',
                '            self._connection.execute("rollback")\n'
                '            for copy, data in getattr(self, "late", ()):\n'
                "                with self._connection.cursor() as cursor, cursor.copy(copy) as target:\n"
                "                    target.write(data)\n",
            ),
        ),
        (),
        READING,
        f"{RACES}::test_a_reader_that_dies_once_its_marker_has_committed_loses_nothing",
    ),
    Mutation(
        "rows kept whose marker did not commit",
        (
            Edit(f"{SNAPSHOT}/coordinator.py", "not each.alive) or each.passed]", "not each.alive)]"),
            Edit(f"{SNAPSHOT}/coordinator.py", 'if state == "aborted":', 'if state == "never":'),
        ),
        (),
        (*READING, "--faults", "kill snapshot,kill snapshot worker,freeze snapshot worker,cut snapshot"),
        f"{RACES}::test_rows_whose_marker_has_not_committed_are_read_again",
    ),
    Mutation(
        "a row that was read counts as from before its table joined",
        (Edit(f"{SNAPSHOT}/shapes.py", "            joined=True,\n", ""),),
        (),
        READING,
        f"{JOINING}::test_a_value_of_the_snapshot_is_filled_in_despite_earlier_changes",
    ),
    Mutation(
        "the table of a range is in doubt where its marker is",
        (
            Edit(
                "relation_registry:RelationRegistry.place_range",
                "        if read.fingerprint is not None:\n",
                "        if not read.fingerprint:\n",
            ),
            Edit(
                "relation_registry:RelationRegistry.place_range",
                "read = replace(read, fingerprint=read.fingerprint.settle())",
                "read = replace(read, fingerprint=None)",
            ),
        ),
        (),
        READING,
        f"{JOINING}::test_a_value_of_the_snapshot_is_filled_in_after_a_table_rewrite",
    ),
    Mutation(
        "a table is read by its key before its updates are captured",
        (Edit(f"{SNAPSHOT}/reader.py", "if shape.by_key and captured_now", "if not shape.by_key and register"),),
        (),
        READING,
        f"{JOINING}::test_nothing_is_read_between_the_key_and_the_capture_of_updates",
    ),
    Mutation(
        "a batch is written at once while a segment waits",
        (Edit("log_end:read", "    if has_staged:\n        return PathReason.STAGED\n", ""),),
        (),
        test=f"{AT_ONCE}::test_what_is_not_plain_is_staged_and_so_is_what_comes_behind_it",
    ),
    Mutation(
        "a batch is written at once before rows that were read",
        (
            Edit(
                "log_writer:LogWriter._append",
                "            self._end = None  # staged",
                "            self._end = self._end if not batch.rows else None  # what",
            ),
        ),
        (),
        test=f"{AT_ONCE}::test_snapshot_rows_come_before_commits_behind_their_place",
    ),
    Mutation(
        "the log's end is remembered after a staged batch",
        (Edit("log_writer:LogWriter._append", "            self._end = None  # staged", "            # what"),),
        (),
        test=f"{AT_ONCE}::test_what_is_not_plain_is_staged_and_so_is_what_comes_behind_it",
    ),
    Mutation(
        "a partition takes the rest of a staged transaction",
        (
            Edit(
                "choose_path:_belongs_to_run",
                "    if known.begun is not None or not batch.rows or",
                "    if not batch.rows or",
            ),
        ),
        (),
        test=CHOICES,
    ),
    Mutation(
        "a batch is written directly while a run is open",
        (
            Edit(
                "choose_path:choose_path",
                "    if known.run is not None and known.run.is_begun:",
                "    if known.run is None and not known:",
            ),
        ),
        (),
        test=CHOICES,
    ),
    Mutation(
        "the writer of a part takes the direct path",
        (Edit("choose_path:writes_directly", 'return worker == 0 and small != "staged"', 'return small != "staged"'),),
        (),
        test=CHOICES,
    ),
    Mutation(
        "the shuffler does not see tables that wait",
        (Edit(STATE, "a.source_id = %(source)s and a.state = 'waiting'", "a.source_id = %(source)s and a.state = ''"),),
        (),
        test=AGREES,
    ),
    Mutation(
        "the shuffler waits for ranges of another epoch",
        (Edit(STATE, " and r.epoch = w.epoch", ""),),
        (),
        test=AGREES,
    ),
    Mutation(
        "a reached worker counts as unreached",
        (
            Edit(
                f"{FRONTIER}/is_drained.sql",
                "select r.worker from pipeline.reached_workers r where",
                "select r.worker from pipeline.reached_workers r where r.worker = 0 and",
            ),
        ),
        (),
        test=AGREES,
    ),
    Mutation(
        "a run begins though a letter waits for its retry",
        (Edit(f"{FRONTIER}/begin_run.sql", " and d.state = 'retrying'", " and d.state = ''"),),
        (),
        test=AGREES,
    ),
    Mutation(
        "what is written at once is not fenced",
        (Edit(f"{FRONTIER}/begin_at_head.sql", " and generation = %(generation)s", ""),),
        (),
        test=f"{AT_ONCE}::test_an_older_writer_can_write_nothing_at_once",
    ),
    Mutation(
        "the watermark is not compared",
        (Edit(f"{FRONTIER}/begin_at_head.sql", " and s.commit_lsn = %(after)s", ""),),
        (),
        test=f"{AT_ONCE}::test_a_watermark_that_moved_since_it_was_read_is_not_overwritten",
    ),
    Mutation(
        "the watermark is not locked",
        (Edit(f"{SHUFFLE_SQL}/lock_watermark.sql", "\nfor update", ""),),
        (),
        test=f"{AT_ONCE}::test_while_the_shuffler_moves_rows_nothing_is_written_at_once",
    ),
    Mutation(
        "seqs that another session has taken are given again",
        (
            Edit(
                f"{FRONTIER}/begin_at_head.sql",
                "\n        and coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0) = %(last_seq)s - %(rows)s",
                "",
            ),
        ),
        (),
        test=f"{AT_ONCE}::test_seqs_that_somebody_has_taken_are_not_given_again",
    ),
    Mutation(
        "readers hear of a batch before it is committed",
        (
            Edit(
                "pipeline/log/writing/sql/wake_readers_at_head.sql",
                " where current_setting('pipeline.written_up_to', true) = $2::text",
                " where $2::text <> ''",
            ),
        ),
        (),
        test=f"{AT_ONCE}::test_nobody_hears_of_events_that_are_not_committed",
    ),
    Mutation(
        "progress is committed before the rows",
        (
            Edit(
                "direct_transaction:DirectTransaction._copy",
                'f"; copy {self._who',
                'f"; COMMIT; BEGIN; copy {self._who',
            ),
        ),
        (points.COPYING,),
    ),
    Mutation(
        "an error behind a commit counts as one before it",
        (
            Edit(
                "direct_path:DirectPath._failed", "if batch is not None and await self._is_written(batch):", "if False:"
            ),
        ),
        (),
        test=f"{AT_ONCE}::test_an_error_behind_its_commit_is_not_taken_for_one_before_it",
    ),
    Mutation(
        "tables become partitions before the watermark moves",
        (
            Edit(
                "attaching:TableAttacher._attach",
                "            if self._unfit() is not None:\n",
                '            self._connection.execute("commit")\n            self._connection.execute("begin")\n'
                "            if self._unfit() is not None:\n",
            ),
        ),
        (),
        test=f"{ADOPTED}::test_partitions_come_with_the_watermark",
    ),
    Mutation(
        "a dead letter is retried above what waits",
        (
            Edit(
                f"{SHUFFLE_SQL}/retry_wanted.sql",
                "\n    and not exists (select from pipeline.adopting_sources a where a.source_id = %(source)s)",
                "",
            ),
        ),
        (),
        test=f"{RUNS}::test_a_dead_letter_is_retried_behind_a_backlog",
    ),
    Mutation(
        "an index of what is adopted is left invalid",
        (
            Edit(
                f"{ADOPTION}/sql/finish_table.sql",
                "    analyze {table} (seq, source_database_id, source_table_oid, record_pk, action);\n",
                "    update pg_index set indisvalid = false where indrelid = '{table}'::regclass;\n",
            ),
        ),
        (),
        test=f"{ADOPTED}::test_attaching_builds_no_index_and_scans_no_table",
    ),
    Mutation(
        "a part is stored before its turn",
        (
            Edit(
                "partitioned_part:PartPath.settle",
                "        async with self._refusing():\n            if await self._is_reached(segment):\n",
                "        async with self._refusing():\n            if segment:\n",
            ),
        ),
        (),
        test=f"{PARTS}::test_a_part_is_filled_beside_the_one_before_it_and_comes_behind_it",
    ),
    Mutation(
        "parts of a catch-up have ranges that overlap",
        (Edit("log_writer:reserve_part_seqs", "BETWEEN * number + span // BYTES_OF_CHANGE", "span // 2**20"),),
        (),
        test=f"{PARTS}::test_no_part_can_reach_the_seqs_of_the_next_one",
    ),
    Mutation(
        "a part is attached though its seqs are not the next ones",
        (
            Edit("partitioned_part:PartPath._comes_next", "highest=segment.first_seq", "highest=2**62"),
            Edit(
                "attaching:TableAttacher._overtaken", "if seq >= tables[0].first_seq else None", "if seq < 0 else None"
            ),
        ),
        (),
        test=f"{PARTS}::test_what_is_not_next_any_more_is_moved",
    ),
    Mutation(
        "the log does not jump after a restore",
        (Edit("pipeline/log/sql/jump.sql", "j.after - 1) from jump j", "j.before) from jump j"),),
        (),
        test=f"{JUMPS}::test_a_dump_jumps_each_time_it_is_restored",
    ),
    Mutation(
        "each jump is as wide as the last",
        (Edit("pipeline/log/sql/jump.sql", "n.seq + 1, %(clock)s::bigint,", "n.seq + 1000000,"),),
        (),
        test=f"{JUMPS}::test_a_dump_jumps_each_time_it_is_restored",
    ),
    Mutation(
        "a session does not ask whether the log was restored",
        (Edit("shuffler:Shuffler._require_continued", "if not self._is_continued:", "if self._stopping():"),),
        (),
        test=f"{JUMPS}::test_a_copied_database_jumps",
    ),
    Mutation(
        "a run begins inside of a partition that is there",
        (Edit(f"{FRONTIER}/begin_run.sql", "i.inhparent = %(table)s::regclass", "i.inhparent = 0"),),
        (),
        test=f"{ADOPTED}::test_segments_become_partitions_with_all_that_a_row_says",
    ),
    Mutation(
        "what an older worker has filled is adopted",
        (Edit(f"{ADOPTION}/sql/commit_tables.sql", " and generation = %(generation)s and epoch", " and epoch"),),
        (),
        test=f"{ADOPTED}::test_an_older_worker_can_store_no_segment",
    ),
    Mutation(
        "a batch is written at once while a table waits",
        (
            Edit(
                f"{FRONTIER}/log_end.sql",
                "select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting'",
                "select where false",
            ),
            Edit(
                f"{FRONTIER}/begin_at_head.sql",
                "select from pipeline.adopted_tables a where a.source_id = s.source_id and a.state = 'waiting'",
                "select where false",
            ),
            Edit(MIGRATION, "and (t.last_lsn <= new.commit_lsn or", "and ("),
        ),
        (),
        test=f"{RUNS}::test_nothing_is_written_at_once_while_a_segment_waits",
    ),
    Mutation(
        "a run begins while something staged is not in the log",
        (
            Edit(f"{FRONTIER}/is_drained.sql", "g.last_lsn > s.commit_lsn", "false"),
            Edit(f"{FRONTIER}/begin_run.sql", "g.last_lsn > s.commit_lsn", "false"),
        ),
        (),
        test=f"{RUNS}::test_a_reader_older_than_moved_rows_sees_no_segment_after_them",
    ),
    Mutation(
        "tables are attached below a seq that was handed out",
        (
            Edit(
                "attaching:TableAttacher._overtaken", "if seq >= tables[0].first_seq else None", "if seq < 0 else None"
            ),
        ),
        (),
        test=f"{ADOPTED}::test_tables_whose_seqs_were_handed_out_are_moved",
    ),
    Mutation(
        "what is behind rows that were moved is attached",
        (
            Edit(
                "pipeline/log/shuffling/sql/next_tables.sql",
                "attaches and run > coalesce(moved_run, 0) as attaches",
                "attaches",
            ),
        ),
        (),
        test=f"{RUNS}::test_a_segment_that_cannot_be_attached_is_moved_with_all_behind_it",
    ),
    Mutation(
        "what waits is attached though there are routes",
        (Edit("attaching:TableAttacher._reason", "if self._transfers.has_routes:", "if False:"),),
        (),
        test=f"{ROUTED}::test_what_waits_when_routes_change_goes_by_the_new_ones",
    ),
    Mutation(
        "an older version passes what waits",
        (Edit(MIGRATION, "and (t.last_lsn <= new.commit_lsn or new.epoch <> old.epoch)", "and false"),),
        (),
        test=f"{RUNS}::test_an_older_version_cannot_pass_what_waits",
    ),
    Mutation(
        "an acknowledgement of a part of a transaction counts for all of it",
        (
            Edit(
                f"{SESSIONS}/frames.py",
                "        self._begun(begin.final_lsn)\n",
                "        self._begun(begin.final_lsn)\n        self._nextlsn = _written(begin.final_lsn + 1)\n",
            ),
            Edit(
                f"{SESSIONS}/progress.py",
                "        self.rule.begin(commit_lsn)\n",
                "        self.rule.begin(commit_lsn)\n"
                "        self._acknowledgements.expect(commit_lsn + 1)\n"
                "        self._acknowledgements.sent_to = commit_lsn + 1\n",
            ),
        ),
        (),
        (),
        f"{WIRE}/test_stream.py::test_only_the_last_frame_of_a_large_transaction_confirms_it",
    ),
    Mutation(
        "a session's position is stored after it is confirmed",
        (
            Edit(
                f"{SESSIONS}/stream.py",
                '            await self._say("move_session", position=position)\n'
                "            self._reporter.confirm(position)\n",
                "            self._reporter.confirm(position)\n"
                '            await self._say("move_session", position=position)\n',
            ),
        ),
        (),
        (),
        f"{WIRE}/test_stream.py::test_a_position_is_stored_before_the_source_learns_of_it",
    ),
    Mutation(
        "the snapshot of another session is read",
        (
            Edit(
                "snapshot:SnapshotRegistry.get",
                "            return self._exported.get(slot)\n",
                "            return next(reversed(self._exported.values()), None)\n",
            ),
            Edit("pipeline/wires/pgdeltastream/endpoints.py", " or exported.session.id != session.id", ""),
        ),
        (),
        (),
        f"{WIRE}/test_snapshot_pages.py::test_each_session_reads_the_rows_of_its_own_moment",
    ),
)


def copy(folder: Path) -> None:
    """The parts of the repository that the tests need."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def apply(folder: Path, mutation: Mutation) -> None:
    """Raises ValueError when the text to replace is not there exactly once."""
    for edit in mutation.edits:
        path, begin, end = edit.find(folder)
        text = path.read_text("utf-8")
        if (found := text.count(edit.old, begin, end)) != 1:
            raise ValueError(
                f"mutation {mutation.name!r}: {edit.place} has this text {found} times, not once: {edit.old}"
            )
        path.write_text(text[:begin] + text[begin:end].replace(edit.old, edit.new) + text[end:], "utf-8")
        if path.suffix == ".py":  # what does not even compile says nothing of the tests
            compile(path.read_text("utf-8"), str(path), "exec")


def directed(folder: Path, mutation: Mutation, *, every: bool) -> str:
    """Play the points of the mutation, then perhaps all others, until one fails; a line that says which and when."""
    ordered = [point for point in POINTS if point.place in mutation.places]
    ordered += [point for point in POINTS if every and point not in ordered]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    if mutation.test:
        return _by_test(folder, mutation, command)
    seconds, status, output = run(folder, [*command, *(f"{TEST}[{point.name}]" for point in ordered)])
    found = re.search(r"^FAILED .*?\[(.*)\]", output, re.MULTILINE)
    if status == 0 or found is None:
        return f"NOT CAUGHT by the directed points in {seconds:.0f} s" + ("" if status == 0 else f":\n{output[-2000:]}")
    reason = next((line for line in output.splitlines() if line.startswith("E  ")), "").removeprefix("E").strip()
    return f"caught in {seconds:.0f} s when {found[1]}: {reason[:300]}"


def _by_test(folder: Path, mutation: Mutation, command: Sequence[str]) -> str:
    seconds, status, output = run(folder, [*command, mutation.test])
    reason = next((line for line in output.splitlines() if line.startswith("E  ")), "").removeprefix("E").strip()
    name = mutation.test.rpartition("::")[2]
    return f"caught in {seconds:.0f} s by {name}: {reason[:300]}" if status == 1 else f"NOT CAUGHT by {name}:\n{output}"


def random(folder: Path, mutation: Mutation) -> str:
    """Run the random harness until its first failure; returns a line that says when."""
    seconds, status, output = run(folder, [sys.executable, *RANDOM, *mutation.arguments])
    verdict = "caught" if status == 1 else "NOT CAUGHT"
    return f"{verdict} by the random harness in {seconds:.0f} s\n{output[-600:]}"


def run(folder: Path, command: Sequence[str]) -> tuple[float, int, str]:
    """Seconds, exit status and output of a command in the copy."""
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return time.monotonic() - started, done.returncode, done.stdout + done.stderr


def main() -> int:
    """Exit status 1 when a mutation was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.faults.mutations", description=__doc__)
    parser.add_argument("--only", choices=[mutation.name for mutation in MUTATIONS])
    parser.add_argument("--all", action="store_true", help="every directed point, not only those that should notice")
    parser.add_argument("--random", action="store_true", help="the random harness too")
    arguments = parser.parse_args()
    missed = 0
    for mutation in MUTATIONS:
        if arguments.only not in (None, mutation.name):
            continue
        with tempfile.TemporaryDirectory(prefix="wal-mutation-") as name:
            folder = Path(name)
            copy(folder)
            apply(folder, mutation)
            checks: list[Callable[[Path, Mutation], str]] = []
            if mutation.places or mutation.test or arguments.all:
                checks.append(partial(directed, every=arguments.all))
            if arguments.random or not (mutation.places or mutation.test):
                checks.append(random)
            for check in checks:
                said = check(folder, mutation)
                missed += said.startswith("NOT")
                print(f"{mutation.name}: {said}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
