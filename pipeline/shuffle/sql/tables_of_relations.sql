-- The table that each table version is of.
select id, table_oid, table_schema, table_name from pipeline.relations where id = any(%(ids)s)
