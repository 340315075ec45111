-- What a table lacks to be an events table: columns of the default one, as `name type`; a sequence; rights of this user.
select
    coalesce((
        select array_agg(format('%%s %%s', missing.name, missing.type) order by missing.name)
        from (
            select a.attname as name, format_type(a.atttypid, a.atttypmod) as type from pg_attribute a
            where a.attrelid = to_regclass('public.sequin_events') and a.attnum > 0 and not a.attisdropped
            except
            select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        ) missing
    ), '{}') as missing,
    c.relkind in ('r', 'p') as is_table,
    to_regclass(%(sequence)s) is not null as has_sequence,
    has_table_privilege(c.oid, 'insert') and pg_has_role(c.relowner, 'usage') as may_write
from pg_class c
where c.oid = to_regclass(%(table)s)
