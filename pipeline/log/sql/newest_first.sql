-- Read epoch, commit_lsn and commit time (µs since 2000) of each event of a source, newest first.
select source_epoch, commit_lsn,
    (extract(epoch from committed_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
from {events}
where source_database_id = %(source)s and seq <= %(upto)s
order by seq desc
