-- List all versions of the relations to which these versions belong, in order.
select r.id, r.relation_oid, r.table_oid, r.key_columns, r.columns, r.unique_in_root, r.memberships, r.from_lsn, r.from_idx
from pipeline.relations r
where r.source_id = %(source)s and r.epoch = %(epoch)s and r.relation_oid in (
    select n.relation_oid from pipeline.relations n where n.id = any(%(ids)s))
order by r.relation_oid, r.id
