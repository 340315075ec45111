-- Statements that let a table accept a row. Each drops a check of this name, or without a name the not null of this
-- column, of the table or of a table that it inherits from.
with recursive line as (
    select c.oid from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %(schema)s and c.relname = %(table)s
    union
    select i.inhparent from line l join pg_catalog.pg_inherits i on i.inhrelid = l.oid
)
select pg_catalog.format('alter table %%I.%%I ', n.nspname, c.relname) || what.text
from line l
join pg_catalog.pg_class c on c.oid = l.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral (
    select pg_catalog.format('drop constraint %%I', k.conname) as text from pg_catalog.pg_constraint k
    where k.conrelid = l.oid and k.contype = 'c' and k.coninhcount = 0 and k.conname = %(constraint)s
    union all
    select pg_catalog.format('alter column %%I drop not null', a.attname) from pg_catalog.pg_attribute a
    where a.attrelid = l.oid and a.attnotnull and %(constraint)s::text is null and a.attname = %(column)s
        and not exists (
            select from pg_catalog.pg_inherits i
            join pg_catalog.pg_attribute p on p.attrelid = i.inhparent and p.attname = a.attname and p.attnotnull
            where i.inhrelid = l.oid)
) what
order by 1
