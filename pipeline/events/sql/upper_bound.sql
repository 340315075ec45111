-- The first seq beyond the last partition; null when there is none.
select max((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''(\d+)''\)'))[1]::bigint)
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = %(table)s::regclass
