-- Store the names and the key that a table has now.
update pipeline.snapshot_tables set table_schema = %(schema)s, table_name = %(name)s, keyed = %(keyed)s,
    key = %(key)s, members = %(members)s
where source_id = %(source)s and table_oid = %(oid)s
