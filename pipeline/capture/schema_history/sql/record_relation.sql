-- Add a table version.
insert into pipeline.relations (
    source_id, epoch, relation_oid, relation_schema, relation_name, table_oid, table_schema, table_name,
    replica_identity, columns, key_columns, unique_in_root, memberships, fingerprint, from_lsn, from_idx)
values (
    %(source)s, %(epoch)s, %(relation_oid)s, %(relation_schema)s, %(relation_name)s, %(table_oid)s, %(table_schema)s,
    %(table_name)s, %(replica_identity)s, %(columns)s, %(key_columns)s, %(unique_in_root)s,
    %(memberships)s, %(fingerprint)s, %(from_lsn)s, %(from_idx)s)
returning id
