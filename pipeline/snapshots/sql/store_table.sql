-- Store that a table is captured from now on, or again, or in another epoch. A table without rows is complete from here on.
-- `keeps`: in another epoch, the log still has the table's earlier changes.
insert into pipeline.snapshot_tables as t (
    source_id, table_oid, epoch, table_schema, table_name, joined, keyed, reason, reread, events_table, complete_seq,
    since_seqs, told_seqs, since_lsn, key, members, void_epoch, void_lsn)
select %(source)s::uuid, %(oid)s::bigint, %(epoch)s::integer, %(schema)s::text, %(name)s::text, %(joined)s::bigint,
    %(keyed)s::boolean, %(reason)s::text, %(reread)s::text,
    case when %(complete)s then %(events_table)s end,
    case when %(complete)s then coalesce((select max(e.last_seq) from pipeline.events_tables e
        where e.source_id = %(source)s and e.name = %(events_table)s), 0) end,
    now.seqs, case when %(complete)s then now.seqs end, %(since_lsn)s::bigint, %(key)s::text, %(members)s::bigint[],
    case when %(rekeyed)s then %(epoch)s::integer end, case when %(rekeyed)s then %(lsn)s::bigint end
from (select coalesce(jsonb_object_agg(e.name, coalesce(e.last_seq, 0)), '{}') as seqs from pipeline.events_tables e
    where e.source_id = %(source)s) now
on conflict (source_id, table_oid) do update
set epoch = excluded.epoch, table_schema = excluded.table_schema, table_name = excluded.table_name,
    joined = excluded.joined, keyed = excluded.keyed, captured = true, backfill_id = null, reason = excluded.reason,
    reread = excluded.reread, events_table = excluded.events_table, first_seq = null,
    complete_seq = excluded.complete_seq, since_seqs = excluded.since_seqs,
    settled_lsn = null, since_lsn = excluded.since_lsn, key = excluded.key, members = excluded.members,
    void_epoch = coalesce(excluded.void_epoch, t.void_epoch), void_lsn = coalesce(excluded.void_lsn, t.void_lsn),
    told_seqs = case when %(keeps)s then t.told_seqs else excluded.told_seqs end
