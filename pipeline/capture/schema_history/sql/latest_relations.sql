-- Find the last known version of each relation of a source.
select distinct on (relation_oid, case when relation_oid = 0 then relation_name end)
    id, relation_oid, relation_schema, relation_name, table_oid, table_schema, table_name,
    replica_identity, columns, key_columns, unique_in_root, memberships, fingerprint, from_lsn, from_idx
from pipeline.relations
where source_id = %(source)s and epoch = %(epoch)s
order by relation_oid, case when relation_oid = 0 then relation_name end, id desc
