-- Tables of which a version begins after a place of the log, with the names that they have in the newest.
select distinct on (r.table_oid) r.table_oid, r.table_schema, r.table_name
from pipeline.relations r
where r.source_id = %(source)s and r.table_oid <> 0 and r.table_oid <> all(%(known)s)
    and (r.epoch, r.from_lsn) > (%(source_epoch)s, coalesce(%(commit_lsn)s::bigint, 0))
order by r.table_oid, r.id desc
