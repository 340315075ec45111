-- From when to when each partition of a table by committed_at goes; null: without an end.
select c.relname::text as name,
    substring(b.text from 'FROM \(''([^'']+)''\)')::timestamptz as lower,
    substring(b.text from 'TO \(''([^'']+)''\)')::timestamptz as upper
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as text) b
where i.inhparent = %(table)s::regclass and b.text like 'FOR VALUES%%'
order by lower nulls first
