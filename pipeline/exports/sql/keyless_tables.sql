-- Tables whose newest version has no key: their changes are exported, but no key tells which row a change belongs to.
select schema_name, table_name
from (
    select distinct on (table_schema, table_name)
        table_schema as schema_name, table_name, cardinality(key_columns) as key_size, table_oid
    from pipeline.relations
    order by table_schema, table_name, id desc
) newest
where key_size = 0 and table_oid <> 0
order by 1, 2
