-- The relations that hold the rows of tables (the tables or their leaves), with their sizes and the rights of this user.
-- The functions of sizes wait for a session that locks a table.
select c.oid::pg_catalog.int8 as oid, pg_catalog.format('%%I.%%I', n.nspname, c.relname) as name, t.oid as table_oid,
    coalesce(pg_catalog.pg_relation_filenode(c.oid), 0)::pg_catalog.int8 as file,
    case when %(sized)s then pg_catalog.pg_relation_size(c.oid) else 0 end
        operator(pg_catalog./) pg_catalog.current_setting('block_size')::pg_catalog.int4 as blocks,
    c.reltuples::pg_catalog.float8 as tuples, c.relpages as pages,
    case when %(sized)s then pg_catalog.pg_table_size(c.oid) else 0 end as bytes,
    exists (select from pg_catalog.pg_index i where i.indrelid operator(pg_catalog.=) c.oid
        and (i.indisprimary or i.indisreplident) and i.indimmediate and i.indisvalid) as identified,
    pg_catalog.format('"%%s"', pg_catalog.replace(current_user, '"', '""')) as user,
    pg_catalog.quote_ident(n.nspname) as schema,
    pg_catalog.has_schema_privilege(n.oid, 'usage') as may_use_schema,
    pg_catalog.has_table_privilege(c.oid, 'select') as readable,
    pg_catalog.has_column_privilege(c.oid, 'ctid', 'select') as by_place,
    pg_catalog.row_security_active(c.oid) as hidden
from pg_catalog.unnest(%(oids)s::pg_catalog.int8[]) t (oid)
cross join lateral (
    select t.oid::pg_catalog.oid
    union
    select relid from pg_catalog.pg_partition_tree(t.oid::pg_catalog.oid) where isleaf
) r (oid)
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) r.oid
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where c.relkind operator(pg_catalog.=) 'r' and c.relpersistence operator(pg_catalog.=) 'p'
order by n.nspname, c.relname
