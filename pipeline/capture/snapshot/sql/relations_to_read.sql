-- The relations that hold the rows of tables: themselves or their leaves; with their sizes, and what keeps this user
-- from reading them. Sizes wait for whoever locks a table.
select c.oid::bigint as oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name, t.oid as table_oid,
    coalesce(pg_catalog.pg_relation_filenode(c.oid), 0)::bigint as file,
    case when %(sized)s then pg_catalog.pg_relation_size(c.oid) else 0 end
        / current_setting('block_size')::integer as blocks,
    c.reltuples::float8 as tuples, c.relpages as pages,
    case when %(sized)s then pg_catalog.pg_table_size(c.oid) else 0 end as bytes,
    exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and (i.indisprimary or i.indisreplident)
        and i.indimmediate and i.indisvalid) as identified,
    pg_catalog.has_table_privilege(c.oid, 'select') and pg_catalog.has_schema_privilege(n.oid, 'usage') as readable,
    pg_catalog.row_security_active(c.oid) as hidden
from unnest(%(oids)s::bigint[]) t (oid)
cross join lateral (
    select t.oid::oid
    union
    select relid from pg_catalog.pg_partition_tree(t.oid::oid) where isleaf
) r (oid)
join pg_catalog.pg_class c on c.oid = r.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and c.relpersistence = 'p'
order by n.nspname, c.relname
