"""Comments of tables and columns that say who does what; nothing else changes."""

from __future__ import annotations

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None
additive = True

_COMMENTS = """
comment on column public.consumer_records.record is
    'Set only for a key that the row has left, because its record is not that of the event.';
comment on column public.consumer_records.event is 'The complete event of a dead letter, which may outlive the log.';
comment on column public.consumer_records.state is
    'available, blocked (behind an earlier item of its row or group), delivered, pending_redelivery or dead.';
comment on column public.consumer_records.delivered_seq is 'The event that was last delivered.';
comment on column public.consumer_records.delivered_group is 'The group of the item when it was delivered.';
comment on column public.consumer_records.left_pk is
    'If each event is an item: the previous key of the row, if the event changed it. The item waits behind items of'
    ' that key, too.';
comment on column public.consumer_records.is_alone is
    'If each event is an item: true if the event belongs to no row, so the item waits behind no other. Null: the'
    ' consumer collapses.';
comment on table pipeline.consumers is 'Named readers of the log. Change them only with the functions.';
comment on column pipeline.consumers.group_by is 'Columns of record that make the group; null: each row is a group.';
comment on column pipeline.consumers.reader is 'cursor: the client that reads now.';
comment on column pipeline.consumers.collapse is
    'records: true if an item is a row with its last change, false if each event is an item. It never changes.';
comment on column pipeline.consumers.events_table is
    'The events table that it reads, as schema.table; null: the default one. It never changes.';
comment on function pipeline.keep_turn() is
    'Stops a server of an older version from moving the log past adopted tables that wait, of which it does not know.';
comment on column pipeline.adopted_tables.attaches is
    'True if the table becomes a partition; false if its rows are moved, because it has no indexes.';
comment on column pipeline.adopted_tables.ends is
    'True if the table ends with a complete transaction; false if its last transaction continues in the next table.';
comment on column pipeline.adopted_tables.relations is 'The table versions of its rows.';
comment on table pipeline.adoptions is
    'Workers that write their backlogs as partitions of the events table, and what delays them.';
comment on column pipeline.adoptions.run is
    'The number of the last run. A run begins when everything staged is in the log.';
comment on column pipeline.adoptions.from_seq is 'No other writer uses this seq or a later one; null between runs.';
comment on column pipeline.adoptions.not_before is
    'Transactions up to this commit_lsn are staged, so no run contains them.';
comment on column pipeline.adoptions.moved_run is
    'The tables of this run, and of earlier ones, no longer become partitions: their rows are moved.';
comment on column pipeline.replication_progress.generation is
    'Grows with each new worker; a worker of an older generation can write nothing.';
comment on column pipeline.replication_progress.position is
    'The LSN that may be confirmed: the end of the last completely staged transaction, or a later LSN without'
    ' changes to stage before it.';
comment on column pipeline.replication_progress.backend_pid is
    'With backend_start, the session of the newest writer, which a newer writer may end.';
comment on view pipeline.adopting_sources is
    'Sources whose backlog has reserved the next seqs: other writers get seqs once the backlog is in the log.';
comment on table pipeline.backfills is
    'Readings of the rows of a table: because it joined a publication, or because a user requested it.';
comment on column pipeline.backfills.table_oid is 'The table; for partitions, their root.';
comment on column pipeline.backfills.kind is
    'initial: the table joined a publication. asked: a user requested it. differences: only rows that differ from'
    ' the log are appended.';
comment on column pipeline.backfills.condition is 'SQL that is true for the rows to read; null: all rows.';
comment on column pipeline.backfills.after_xid is
    'The reading begins once all transactions with a smaller xid have ended, because these may have written before'
    ' the table joined.';
comment on column pipeline.backfills.after_lsn is 'The end of the source''s WAL when after_xid was read.';
comment on column pipeline.backfills.since_seqs is
    'By events table, the last seq before after_xid was read: transactions from that xid on have later seqs.';
comment on column pipeline.backfills.files is
    'pg_relation_filenode of each planned relation, by oid: in another file, rows are in other blocks.';
comment on column pipeline.backfills.by_key is
    'True if keys identify the rows; if false, the table is read as one range.';
comment on column pipeline.backfills.rows_added is
    'The number of rows that became events; for the other rows, the log had a newer event.';
comment on column pipeline.backfills.gap_after is
    'The log lacks changes that the source made between this LSN and gap_until; null: no gap is known.';
comment on column pipeline.backfills.told_seqs is
    'The value of snapshot_tables when this began; null: the log did not say which rows the table had.';
comment on column pipeline.backfills.floor_seqs is
    'By events table, the seq up to which retention had dropped events when the comparison was planned.';
comment on column pipeline.backfills.relations is
    'For a partitioned table: only these leaf partitions are read; null: all.';
comment on column pipeline.backfills.bounds is
    'For a comparison: only keys within one of these bounds, each as in pipeline.partitions; null: all.';
comment on table pipeline.captured_tables is
    'The times during which a table was in a publication. Changes between two such times are not in the log.';
comment on column pipeline.captured_tables.epoch is 'The epoch of joined_lsn.';
comment on column pipeline.captured_tables.joined_lsn is 'Changes from this LSN on are captured.';
comment on column pipeline.captured_tables.was_empty is
    'True if the table had no rows when it joined; null: unknown. Rows that it had are not in the log.';
comment on column pipeline.captured_tables.left_lsn is
    'Changes after this LSN are not captured; null: the table is still in a publication.';
comment on column pipeline.captured_tables.root_oid is
    'The root of its partitions when it joined, or the table itself; null: unknown.';
comment on table pipeline.catchup_parts is
    'Parts of a backlog, for several workers: commit records begin in [from_lsn, until_lsn). Worker 0 stages'
    ' everything before them; without rows here, everything.';
comment on column pipeline.catchup_parts.first_seq is
    'The part may become partitions with seqs from this one on; null: it is staged, and moved.';
comment on column pipeline.consumer_progress.consumer_id is
    'The value of pipeline.progress_id, so that servers of earlier versions find only consumers that they can serve.';
comment on table pipeline.consumer_touches is
    'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks'
    ' them again until it ends.';
comment on table pipeline.epochs is
    'Epochs of a source. LSNs can be compared only within one epoch. The command `pipeline sources adopt` begins the'
    ' next one.';
comment on column pipeline.epochs.previous_position is
    'The LSN up to which the previous epoch was staged when this one began.';
comment on column pipeline.epochs.after_seq is 'The last seq of the previous epoch.';
comment on column pipeline.epochs.after_seqs is 'The last seq of the previous epoch in each events table.';
comment on table pipeline.events_tables is
    'Every events table that was ever written for a source: its newest seq, and the number of events that the'
    ' shuffler added.';
comment on table pipeline.export_compactions is
    'Merges of small files. switched: the ledger and Iceberg have the new files; the folders of days may still lack'
    ' them.';
comment on column pipeline.export_compactions.written is 'Paths of the new files; null once the merge is complete.';
comment on column pipeline.export_compactions.replaced is
    'Paths of the files that the new ones replace; null once the merge is complete.';
comment on table pipeline.export_datasets is
    'The head of a lake''s manifest: the newest part of each dataset, and the parts that are full.';
comment on column pipeline.export_datasets.upto_seq is
    'The seq up to which its newest part lists files; null: the seq in the name of the part.';
comment on column pipeline.export_files.table_oid is
    'The table of all its changes; null: an earlier version wrote the file, with the changes of all tables of that'
    ' name.';
comment on column pipeline.export_files.staged is 'The path of the file before its export was published.';
comment on column pipeline.export_files.first_lsn is
    'The lowest commit_lsn in the file, with the lowest commit_idx; last_lsn has the highest. They tell which'
    ' versions of the table the file has.';
comment on column pipeline.export_files.part is
    'The full part of the manifest that lists the file; null: the newest part lists it.';
comment on column pipeline.export_files.day is
    'The UTC date of its changes; null: an earlier version wrote the file, which is never merged.';
comment on column pipeline.export_files.merged is
    '0: as it was exported. 1: merged before its day had ended. 2: never merged again.';
comment on table pipeline.export_iceberg is
    'Lakes with Iceberg tables, and the seq up to which all of these have the changes; stored in the transaction'
    ' that sets their metadata.';
comment on column pipeline.export_iceberg.uri is
    'The address of another catalog; empty: the catalog is pipeline.iceberg_tables.';
comment on column pipeline.export_iceberg.location is
    'Where the lake was when this was stored: the metadata has absolute paths.';
comment on column pipeline.export_iceberg.number is 'The number of the last commit.';
comment on column pipeline.export_iceberg.kept_seq is 'The last seq of the oldest commit that readers may still read.';
comment on column pipeline.export_iceberg_tables.state_id is 'The version of the state whose files the table has.';
comment on column pipeline.export_iceberg_tables.oldest is
    'The number of the oldest commit of which the table has a snapshot.';
comment on table pipeline.export_iceberg_written is
    'Metadata files of a commit that is being made; if it fails, the next run removes them.';
comment on table pipeline.export_replaced is
    'Files that newer ones have replaced. They stay for a while, because a reader may still read them.';
comment on table pipeline.export_schemas is
    'Columns and key of the files of a dataset and schema version: a newer row has more columns, or wider types.';
comment on column pipeline.export_states.form_id is
    'The table version, a row of pipeline.relations, whose columns it has.';
comment on column pipeline.export_states.superseded_at is 'When a newer version replaced it; null: it is the newest.';
comment on table pipeline.export_tables is
    'Tables with a current state, by the oid that each had in the first epoch that knows it, even if they are renamed.';
comment on column pipeline.export_tables.dataset is
    'The name of the table in `current`; null: it has none, because it was renamed, or another table has that name.';
comment on column pipeline.export_tables.shows is 'The seq to which `latest` is known to be set; null: it must be set.';
comment on column pipeline.export_tables.waits_since is
    'Since when its current state lacks changes that wait because they are few for its size; null: none wait.';
comment on table pipeline.export_written is
    'Objects that a run of the export writes to a bucket. After the run, those that nothing lists are removed.';
comment on column pipeline.export_written.state_id is
    'The version of a state to which the object belongs; null: it belongs to an export.';
comment on table pipeline.exports is
    'The ledger: ranges of seqs, each without its first seq. A committed range is in the lake, completely and once.';
comment on column pipeline.exports.files is 'Files that an earlier version wrote; they become rows of export_files.';
comment on column pipeline.exports.schemas is 'Schemas that an earlier version wrote.';
comment on column pipeline.exports.last_committed_at is
    'The latest commit in the range; -infinity: it has none; null: an earlier version wrote the row.';
comment on table pipeline.follower_tables is 'The tables of each follower, with their states and the reasons.';
comment on column pipeline.follower_tables.table_oid is 'The table at the source; for partitions, their root.';
comment on table pipeline.followers is
    'Databases that the server keeps equal to the source by applying the log, and how far each is.';
comment on column pipeline.followers.dsn is 'Its connection string, without any password.';
comment on column pipeline.followers.tables is 'Patterns of its tables; empty: all that are captured.';
comment on column pipeline.followers.copy is
    'The origin of its first rows. source: copied from the source. log: written from the first event of the log on.'
    ' none: it has them already.';
comment on column pipeline.followers.truncates is 'True if tables with rows are emptied before they are copied.';
comment on column pipeline.followers.system_identifier is 'The system identifier of its cluster when it was added.';
comment on column pipeline.followers.wanted is 'What a user asked for; state is what its applier does.';
comment on column pipeline.followers.seq is
    'The seq up to which the log is applied, as its applier last reported. The follower needs every later event.';
comment on column pipeline.followers.reason is 'Why it is in this state.';
comment on column pipeline.followers.remedy is 'What a user can do about the reason.';
comment on table pipeline.iceberg_namespace_properties is 'The namespaces of the catalogs in pipeline.iceberg_tables.';
comment on table pipeline.identity is
    'The id of this pipeline database. The comment of a publication at the source names it, so that the slot belongs'
    ' to this database.';
comment on column pipeline.identity.table_oid is
    'The oid of this table; null: not written since the upgrade. If the table has another oid, the database was'
    ' restored.';
comment on column pipeline.identity.written_by is
    'The transaction that wrote this row. If the row has another xmin, the data was restored.';
comment on table pipeline.inheritance is
    'Tables that began or ceased to inherit from another one. A row of oid 0 says that the catalog was checked.';
comment on column pipeline.inheritance.seen_lsn is
    'The end of the source''s WAL after the check that found it: earlier changes have been sent up to here.';
comment on column pipeline.inheritance.seen_at is 'When a check found it; null: the first check found it.';
comment on table pipeline.installed_functions is
    'The version of the SQL functions, and the digest of their texts. No row: they are older than this table.';
comment on column pipeline.lakes.released_at is
    'Since when retention no longer waits for exports to this lake; null: it waits for them.';
comment on column pipeline.lakes.folded_upto is
    'The current states have every change up to this seq; null: unknown, so the next run finds out.';
comment on column pipeline.lakes.stays is
    'Folders that could not be exchanged, though the file system can do it, each with the reason. They keep their'
    ' files.';
comment on column pipeline.partition_changes.seen_lsn is
    'The end of the source''s WAL after the check that found it: earlier changes have been sent up to here.';
comment on column pipeline.partition_changes.seq is 'For a truncated partition: the event, in events_table.';
comment on column pipeline.partition_changes.backfill_id is 'The backfill that reads or compares it; null: none does.';
comment on column pipeline.partition_changes.reason is 'Why no backfill reads or compares a partition that joined.';
comment on column pipeline.partition_changes.settled_as is
    'read, compared: the partition by itself. kept: the log stays as it is. empty: it had no rows. whole: read or'
    ' compared with the complete table.';
comment on column pipeline.partition_changes.settled_seq is
    'The newest seq of the table''s events when it was settled: from there on, the log has the rows that the'
    ' partition had.';
comment on column pipeline.partition_changes.in_doubt is
    'True if the partition was attached after it was created: it is compared if the log gets rows of it that are'
    ' older than the check that found it.';
comment on table pipeline.partition_looks is
    'Captured tables whose leaf partitions are in pipeline.partitions, and the epoch of the first check of the'
    ' catalog.';
comment on column pipeline.partition_looks.after_relation is
    'The id in pipeline.relations up to which the stream''s versions of leaf partitions were checked.';
comment on column pipeline.partition_looks.after_seqs is
    'By events table: a truncate of a leaf partition after this seq makes the log incomplete.';
comment on column pipeline.partition_looks.unknown is
    'True if it is unknown which partitions joined and left before that first check.';
comment on table pipeline.partitions is
    'The leaf partitions of each captured partitioned table, as the last check of the source''s catalog found them.';
comment on column pipeline.partitions.bounds is
    'From the leaf up to the root: strategy, columns and types of the parent''s partition key, and the bound. Null:'
    ' these do not tell which rows the leaf has.';
comment on column pipeline.partitions.attached_by is
    'xmin of the rows of pg_inherits from the leaf up to the root: if they change, the leaf left and joined again.'
    ' Empty: unknown, because an earlier version stored the row.';
comment on table pipeline.published_forms is
    'Definitions of tables before their first change arrives, because the catalog may differ by then: of partitions,'
    ' and keys beside a full replica identity.';
comment on table pipeline.relations is
    'The versions of each table of the source, each from an LSN on. relation_*: the replicated table or partition;'
    ' table_*: its root.';
comment on column pipeline.relations.columns is
    'The columns. attnum: the number of the column; names: its names in the log, each from a commit_lsn and'
    ' commit_idx on.';
comment on column pipeline.relations.from_idx is
    'commit_idx of the first change of this version, in the transaction at from_lsn: a transaction may alter a table.';
comment on column pipeline.relations.fingerprint is
    'The file, and the versions of pg_attribute rows, as last read for this version: they tell that a table was'
    ' rewritten.';
comment on column pipeline.relations.unique_in_root is
    'True if no two rows of the partition root share a key; null: not checked.';
comment on column pipeline.relations.memberships is
    'oids of the catalog rows by which publications publish its updates: if all of them are new, the log lacks'
    ' updates in between.';
comment on table pipeline.rewrites is
    'Tables whose values DDL changed without an event. For rows that were not written since, the log has the old'
    ' values.';
comment on column pipeline.rewrites.version is 'Distinguishes the rewrite from others of these columns.';
comment on column pipeline.rewrites.from_lsn is
    'commit_lsn of the first change after the rewrite, from_idx its commit_idx; null: none has arrived.';
comment on table pipeline.roles is 'The process that holds each role of serve, and its state.';
comment on table pipeline.routes is
    'The routes for transactions of an epoch after after_lsn, until the next row. events_table: the default one.';
comment on table pipeline.seen_tables is
    'Tables that the source has had in an epoch, captured or not. A row of oid 0 says that the catalog was checked.';
comment on column pipeline.seen_tables.first_seen_at is
    'When a check first found it; null: it existed before the slot, or before the epoch.';
comment on table pipeline.segments is
    'One row per child of wal_events: free, filling, full, or drained, which is emptied later.';
comment on table pipeline.sessions is
    'Slots that clients of another system''s wire created and stream. The newest hundred of the sessions that have'
    ' ended are kept.';
comment on column pipeline.sessions.wire is 'The wire whose clients use it, a name in PIPELINE_WIRES.';
comment on column pipeline.sessions.made_after is
    'An LSN that the source had written before the slot was created: a slot that is confirmed before this LSN is not'
    ' this one.';
comment on column pipeline.sessions.reader is 'The client that streams it, and through which server; null: none.';
comment on table pipeline.snapshot_ranges is
    'Parts of tables that must still be read, or whose rows are staged and have not all become events.';
comment on column pipeline.snapshot_ranges.file is
    'pg_relation_filenode when the range was planned: another file has other blocks.';
comment on column pipeline.snapshot_ranges.keys is
    'Only rows with these keys, a JSON array of arrays of texts; null: a range of blocks.';
comment on column pipeline.snapshot_ranges.state is
    'held: not read now. staged: its rows are durable. placed: its marker has arrived, which gives it its place in'
    ' the log.';
comment on column pipeline.snapshot_ranges.token is
    'Identifies the marker, a logical message of the transaction that reads the range.';
comment on column pipeline.snapshot_ranges.snapshot is 'The snapshot of the transaction that read the range.';
comment on column pipeline.snapshot_ranges.since_seqs is
    'By events table: transactions that are not visible in snapshot, and commit before the marker, come after this'
    ' seq.';
comment on column pipeline.snapshot_ranges.marker_xid is
    'The transaction that reads the range; the server asks the source if it has committed.';
comment on column pipeline.snapshot_ranges.version is
    'The version of the table when the range was read, with its fingerprint.';
comment on column pipeline.snapshot_ranges.by_key is 'True if keys identify its rows.';
comment on column pipeline.snapshot_ranges.seen_lsn is
    'The marker committed before this LSN: a worker that has staged up to here must have placed the range.';
comment on column pipeline.snapshot_ranges.left_out is
    'For a range of keys: the keys for which the log had a newer event.';
comment on column pipeline.snapshot_ranges.compares is
    'True if no rows are read: the table is compared with the log, and ranges of keys that may differ are planned.';
comment on column pipeline.snapshot_ranges.differences is
    'Set if only rows that differ from the log become events: metadata of those events, told_seqs of the backfill,'
    ' and void_epoch and void_lsn of its table. Null: all rows become events.';
comment on column pipeline.snapshot_ranges.departed is
    'Where rows have gone that left the keys of this range by updates; these are in the log up to these seqs, by'
    ' events table.';
comment on table pipeline.snapshot_tables is
    'Every table that is or was captured, and the seq from which on the log has it completely.';
comment on column pipeline.snapshot_tables.joined is 'The id in captured_tables of when it last joined; null: unknown.';
comment on column pipeline.snapshot_tables.keyed is 'True if updates and deletes are captured.';
comment on column pipeline.snapshot_tables.backfill_id is 'The backfill that reads the complete table.';
comment on column pipeline.snapshot_tables.complete_seq is
    'From this seq on, folding the log gives the complete table; null: not yet.';
comment on column pipeline.snapshot_tables.told_seqs is
    'By events table: after this seq the log has all rows that the table ever had, except changes in gaps. Null: it'
    ' never had all of them.';
comment on column pipeline.snapshot_tables.reread is
    'The kind of the backfill that starts once no other backfill of the table runs.';
comment on column pipeline.snapshot_tables.settled_lsn is
    'At this LSN of the source, rows without an event in this epoch were as the earlier epochs have them; null:'
    ' unknown.';
comment on column pipeline.snapshot_tables.since_lsn is
    'The end of the source''s WAL when the table joined, or got this key: an earlier truncate does not make the log'
    ' complete.';
comment on column pipeline.snapshot_tables.key is
    'Numbers of the columns that identify its rows, for each kind of partition; null: unknown.';
comment on column pipeline.snapshot_tables.members is
    'The catalog rows by which publications publish its updates: if they change, some updates were not captured.'
    ' Null: unknown.';
comment on column pipeline.snapshot_tables.void_lsn is
    'Up to this LSN, in void_epoch, events identify its rows by another key, or by none; null: no event does.';
comment on column pipeline.snapshot_tables.keeps_partitions is
    'True if rows of partitions that leave stay in the log, without a warning.';
comment on table pipeline.source_stops is
    'Transactions that the source could not send. The server stops there until the position is beyond commit_lsn.';
comment on column pipeline.source_stops.changes is
    'The number of its changes that arrived before the one that did not.';
comment on table pipeline.sources is 'The databases from which the server replicates.';
comment on column pipeline.sources.publications is
    'The publications that the server created: name -> pg_publication.oid.';
comment on column pipeline.sources.options is
    'START_REPLICATION options: commit_idx is stable only while they do not change.';
comment on column pipeline.sources.timeline is
    'The timeline of the source at the last connection; null: there was none.';
comment on column pipeline.sources.unmatched is
    'Why nothing can be captured: PIPELINE_TABLES matches no existing table. Null: it matches some.';
comment on column pipeline.sources.reads_tables is
    'True if tables that join are read. False: those that the next check finds are not read; then it becomes true.';
comment on column pipeline.sources.reads_from is
    'Tables that joined after this time are read, even if that next check finds them.';
comment on column pipeline.sources.rereads_epoch is
    'The epoch at whose beginning the captured tables must be compared with the log; null: done, or not needed.';
comment on table pipeline.verifications is 'The newest comparisons of the log''s content with the source.';
comment on column pipeline.verifications.share is 'The share of each table''s rows that was compared; 1: all.';
comment on column pipeline.verifications.unknown is
    'Rows that could not be compared completely, because the log lacks values of them.';
comment on table pipeline.wal_written is
    'How far the source had written its WAL, and when by its clock. Older rows are farther apart.';
comment on column pipeline.wal_written.written_at is 'The last moment at which nothing beyond lsn was written yet.';
comment on table pipeline.walstream_sessions is
    'Sessions of walstream''s clients, and holds: a session that has ended holds the position of the consumer for 60'
    ' s.';
comment on column pipeline.walstream_sessions.ended_at is
    'When it ended, and became a hold; null: its client is connected.';
comment on column pipeline.walstream_sessions.acknowledged_seq is
    'The session needs nothing up to this seq; null: an older version began it.';
comment on column pipeline.walstream_sessions.hold_seconds is
    'The remaining seconds of the hold, in which the wire is served; null: not counted yet.';
comment on column pipeline.walstream_sessions.highest_seq is
    'The highest acknowledged_seq of any session or hold since this hold began.';
comment on table pipeline.wire_counters is 'Counters of what has happened on the wires of other systems'' clients.';
comment on column pipeline.worker_load.moved_lsn is
    'Everything before this LSN was in the events tables at some moment.';
comment on column public.wal_events.metadata is
    'Marks of the event, as JSON; null for a change that the source has sent.';
comment on index pipeline.followers_password_idx is 'No two followers may have the same password variable.';
"""
"""The migrations that made these objects have the same texts, so a new database has them from the start."""


def upgrade() -> None:
    """Replace the comments."""
    op.execute(_COMMENTS)


def downgrade() -> None:
    """Keep the comments, which the previous version does not read."""
