-- Return the newest version, up to a place, of the table that had this name.
select r.id, r.epoch, r.from_lsn, r.from_idx, r.relation_oid, r.relation_schema, r.relation_name, r.table_oid,
    r.table_schema, r.table_name, r.replica_identity, r.columns, r.key_columns
from pipeline.relations r
where r.source_id = %(source)s and r.table_schema = %(schema)s and r.table_name = %(name)s
    and (r.epoch, r.from_lsn, r.from_idx) <= (%(epoch)s, %(lsn)s, %(idx)s)
order by r.epoch desc, r.from_lsn desc, r.from_idx desc, r.id desc limit 1
