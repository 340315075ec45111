-- The lower bound of an events table's first partition; 1 when it has none.
select coalesce(min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint), 1)
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
where i.inhparent = %(table)s::regclass
