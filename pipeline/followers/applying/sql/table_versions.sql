-- Return all versions of these tables and of their partitions, in the order of their places.
select r.id, r.epoch, r.from_lsn, r.from_idx, r.relation_oid, r.relation_schema, r.relation_name, r.table_oid,
    r.table_schema, r.table_name, r.replica_identity, r.columns, r.key_columns
from pipeline.relations r
where r.source_id = %(source)s and r.table_oid = any(%(oids)s)
order by r.epoch, r.from_lsn, r.from_idx, r.id
