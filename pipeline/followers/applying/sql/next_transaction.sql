-- Return the transaction that a follower applies next after a seq: its first and last seq, and the tables it changes.
with next as materialized (
    select e.seq, e.source_epoch, e.commit_lsn, e.committed_at from {events} e
    where e.seq > {after} and e.source_database_id = {source} order by e.seq limit 1
), behind as (
    select (
        select e.seq from {events} e
        where e.seq > n.seq and e.source_database_id = {source}
            and (e.source_epoch, e.commit_lsn) is distinct from (n.source_epoch, n.commit_lsn)
        order by e.seq limit 1
    ) as seq from next n
)
select n.seq as first_seq, max(e.seq) as last_seq, n.source_epoch, n.commit_lsn, n.committed_at, count(*) as events,
    coalesce(array_agg(distinct e.source_table_schema || '.' || e.source_table_name)
        filter (where e.source_table_name is not null), '{{}}') as tables
from next n cross join behind b
join {events} e on e.seq >= n.seq and e.source_database_id = {source} and (b.seq is null or e.seq < b.seq)
group by n.seq, n.source_epoch, n.commit_lsn, n.committed_at
