-- Find staged rows without a key that the log has already; of equal rows, the last ones. The log has the rows of a value
-- that were added and not removed again; removing a row that it never had does not count. The table has the rows that
-- were read, changed by later transactions that are in the log before these rows.
with change as materialized (
    {changes}
), emptied as (
    select source_epoch, commit_lsn, commit_idx from change where delta is null
    order by source_epoch desc, commit_lsn desc, commit_idx desc limit 1
), added as (
    select c.row, c.delta,
        case when pg_visible_in_snapshot(
            (x.next - (mod(x.next - c.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, %(snapshot)s::pg_snapshot)
            then 0 else c.delta end as later,
        sum(c.delta) over (partition by c.row order by c.source_epoch, c.commit_lsn, c.commit_idx, c.delta
            rows unbounded preceding) as running
    from change c
    cross join (select pg_snapshot_xmax(%(snapshot)s::pg_snapshot)::text::bigint as next) x
    where c.delta is not null and not exists (select from emptied t
        where (t.source_epoch, t.commit_lsn, t.commit_idx) >= (c.source_epoch, c.commit_lsn, c.commit_idx))
), known as (
    select row, sum(delta) - least(0, min(running)) as has, sum(later) as later from added group by row
), staged as (
    select s.ordinal, s.row, row_number() over (partition by s.row order by s.ordinal) as n,
        count(*) over (partition by s.row) as read
    from (select w.ordinal, w.record::jsonb as row from only {segment} w) s
)
select s.ordinal from staged s join known k on k.row = s.row where s.n > s.read + k.later - k.has
