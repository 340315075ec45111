-- True if the partition of the first seq exists; a table without partitions is complete.
select coalesce(min(coalesce((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint, 0)), 0) <= 1
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = %(table)s::regclass and not i.inhdetachpending
