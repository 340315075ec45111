-- All keys that events of a table name.
select distinct array[{key}] from {events} e
where e.source_database_id = %(source)s and e.source_table_oid = %(table)s and e.action in ('insert', 'update', 'delete', 'read')
