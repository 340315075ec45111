-- List relations that look like tables and cannot be replicated: they have no rows, or write no WAL that could be
-- decoded.
select n.nspname || '.' || c.relname as name,
    case c.relkind when 'f' then 'foreign' when 'm' then 'materialized view' else 'unlogged' end as kind
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where (c.relkind in ('f', 'm') or c.relkind = 'r' and c.relpersistence = 'u') and c.oid >= 16384
    and n.nspname not in ('pg_catalog', 'information_schema')
order by kind, name
