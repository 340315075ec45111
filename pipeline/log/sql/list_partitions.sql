-- List partitions of an events table in order of seq, without those that are being detached; none for a legacy table with
-- another partition key.
select c.oid::bigint as oid, n.nspname as schema, c.relname as name,
    coalesce(substring(b.text from 'FROM \(''(\d+)''\)')::bigint, 0) as lower,
    coalesce(substring(b.text from 'TO \(''(\d+)''\)')::bigint, 9223372036854775807) as upper
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
join pg_namespace n on n.oid = c.relnamespace
cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as text) b
where i.inhparent = %(table)s::regclass and not i.inhdetachpending
    and pg_get_partkeydef(%(table)s::regclass) = 'RANGE (seq)'
order by 4
