-- The names that routes look at: those of the partition root, also for a truncate of a leaf.
select id, table_schema, table_name from pipeline.relations where id = any (%(ids)s::integer[])
