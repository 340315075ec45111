-- Store that the source cannot send this transaction; no row if our position is already past it.
insert into pipeline.source_stops as s (source_id, epoch, commit_lsn, committed_at, xid, changes, cause, sqlstate)
select %(source)s, p.epoch, %(commit_lsn)s, %(committed_at)s, %(xid)s, %(changes)s, %(cause)s, %(sqlstate)s
from pipeline.replication_progress p
where p.source_id = %(source)s and p.worker = 0 and p.epoch = %(epoch)s and p.position <= %(commit_lsn)s
on conflict (source_id, epoch, commit_lsn) do update
set changes = excluded.changes, cause = excluded.cause, sqlstate = excluded.sqlstate
