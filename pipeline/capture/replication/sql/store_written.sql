-- Store samples of the source's end of WAL; if an LSN is stored already, its time becomes the later of the two.
insert into pipeline.wal_written (source_id, epoch, lsn, written_at, spilled_bytes)
select s.id, s.epoch, w.lsn, w.written_at, w.spilled_bytes
from pipeline.sources s
cross join unnest(%(lsns)s::bigint[], %(times)s::timestamptz[], %(spilled)s::bigint[]) as w (lsn, written_at, spilled_bytes)
where s.id = %(source)s
on conflict (source_id, epoch, lsn) do update
set written_at = greatest(wal_written.written_at, excluded.written_at), spilled_bytes = excluded.spilled_bytes
