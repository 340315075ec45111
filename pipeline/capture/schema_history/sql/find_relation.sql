-- Find the last known version of one relation of a source; for logical messages, the version with this name.
select id, relation_oid, relation_schema, relation_name, table_oid, table_schema, table_name,
    replica_identity, columns, key_columns, unique_in_root, memberships, fingerprint, from_lsn, from_idx
from pipeline.relations
where source_id = %(source)s and epoch = %(epoch)s and relation_oid = %(oid)s
    and (relation_oid <> 0 or relation_name = %(name)s)
order by id desc
limit 1
