-- Tables that inherit a check that is not valid in them, with the statement that validates it.
select i.inhrelid::bigint, pg_catalog.format('alter table %%I.%%I validate constraint %%I', n.nspname, c.relname, k.conname)
from pg_catalog.pg_inherits i
join pg_catalog.pg_class c on c.oid = i.inhrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_constraint k on k.conrelid = i.inhrelid and k.conname = %(name)s and k.coninhcount > 0
    and not k.convalidated
where i.inhparent = %(relation)s::bigint::oid
order by 1
