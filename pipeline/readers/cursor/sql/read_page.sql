-- The next events that a filter wants, as JSON text, up to `bytes` of it, and up to which seq that is all there is.
with bounds as materialized (
    select (select coalesce(max(seq), 0) from pipeline.events) as head,
        (select min(seq) from pipeline.events where seq > %(after)s) + %(span)s as upto
), page as materialized (
    select e.seq, e.source_table_schema || '.' || e.source_table_name as table_name, e.action,
        coalesce(concat(e.source_database_id, ' ', e.source_epoch, ' ', nullif(e.commit_lsn::text, '')), '')
            || case when e.commit_lsn is null then e.seq::text else '' end as transaction,
        e.commit_lsn, e.xid, row_to_json(e)::text as event
    from pipeline.events e
    where e.seq > %(after)s and e.seq < (select upto from bounds)
        and (cardinality(%(tables)s::text[]) = 0
            or e.source_table_schema || '.' || e.source_table_name like any (%(tables)s::text[]))
        and (cardinality(%(actions)s::text[]) = 0 or e.action = any (%(actions)s::text[]))
    order by e.seq
    fetch first (%(rows)s) rows with ties
), sized as (
    -- Events of one seq, as tables from before have them, are cut nowhere.
    select page.*, coalesce(sum(octet_length(event)) over (
            order by seq groups between unbounded preceding and 1 preceding), 0) as before,
        count(*) over () as found
    from page
)
select b.head, b.upto, s.found, s.seq, s.table_name, s.action, s.transaction, s.commit_lsn, s.xid, s.event
from bounds b left join sized s on s.before < %(bytes)s
order by s.seq
