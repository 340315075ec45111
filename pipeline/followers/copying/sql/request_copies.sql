-- Request copies of tables while the others follow the log, except tables whose first copy must be finished before that.
-- Each record keeps the place of the version that the table has: that of its last copy or of the position, whichever is
-- later. The stored columns of the last copy are deleted if a schema change has altered the table since.
-- `first`: also tables whose first copy is unfinished; each of these keeps the mark that it was never copied.
insert into pipeline_follower.copies as c (source_database_id, follower, table_oid, wanted_seq, wanted_at, generation,
    formed_epoch, formed_lsn)
select %(source)s, %(follower)s, t.oid, %(seq)s, clock_timestamp(), %(generation)s, %(source_epoch)s,
    coalesce(%(commit_lsn)s::bigint, 0)
from unnest(%(oids)s::bigint[]) t (oid)
on conflict (source_database_id, follower, table_oid) do update
    set source_epoch = null, snapshot = null, lsn = null, rows = null, copied_at = null,
        wanted_seq = excluded.wanted_seq,
        wanted_at = excluded.wanted_at, generation = excluded.generation,
        form = case when exists (
            select from pipeline_follower.forms f
            where (f.source_database_id, f.follower, f.table_oid) = (c.source_database_id, c.follower, c.table_oid)
                and (f.source_epoch, f.lsn) >= (c.source_epoch, c.lsn)
        ) then null else c.form end,
        is_first = c.is_first or c.wanted_seq is null and c.snapshot is null,
        (formed_epoch, formed_lsn) = (
            select f.epoch, f.lsn from (values
                (c.formed_epoch, c.formed_lsn, c.wanted_seq is not null),
                (c.source_epoch, c.lsn, c.wanted_seq is null),
                (excluded.formed_epoch, excluded.formed_lsn, c.wanted_seq is null)
            ) as f (epoch, lsn, counts)
            where f.counts and f.lsn is not null order by f.epoch desc, f.lsn desc limit 1
        )
    where c.snapshot is not null or c.wanted_seq is not null or %(first)s
