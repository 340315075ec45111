-- The next events of some tables after a seq, and up to which seq that is all there is: below `upto`, and `head`. A table
-- from before may have one seq twice: then both are in the page.
with bounds as materialized (
    select (select coalesce(max(seq), 0) from {events}) as head,
        (select min(seq) from {events} where seq > %(after)s) + %(span)s as upto
), page as (
    select * from {events} e
    where e.seq > %(after)s and e.seq < (select upto from bounds)
        and (cardinality(%(tables)s::text[]) = 0
            or e.source_table_schema || '.' || e.source_table_name like any (%(tables)s::text[]))
    order by e.seq
    fetch first (%(limit)s) rows with ties
)
select b.head, b.upto, p.seq, p.source_database_id, p.source_epoch, p.commit_lsn, p.commit_idx, p.xid,
    p.source_table_oid, p.source_table_schema, p.source_table_name, p.record_pk, p.record, p.changes, p.exact,
    p.action, p.unchanged_columns, p.transaction_annotations, p.metadata, p.committed_at, p.inserted_at
from bounds b left join page p on true
order by p.seq
