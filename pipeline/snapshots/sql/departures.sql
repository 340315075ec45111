-- Keys that rows of a table have left by an update, and where, between two seqs.
select old.record_pk, e.source_epoch, e.commit_lsn, e.commit_idx
from (
    select n.source_epoch, n.commit_lsn, n.commit_idx, n.record || n.changes as was
    from {events} n
    where n.seq > %(after)s and n.seq <= %(upto)s and n.source_database_id = %(source)s and n.source_table_oid = %(table)s
        and n.action = 'update' and n.changes ?| %(names)s::text[] and n.commit_lsn is not null
        and not coalesce(n.metadata ? 'outdated', false)
    offset 0
) e
cross join lateral ({key}) old
