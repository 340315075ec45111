-- The checks of a domain: name, definition, and true if all values satisfy it. A domain that is not null has an entry
-- with an empty name.
select k.conname::text, pg_catalog.pg_get_constraintdef(k.oid), k.convalidated
from pg_catalog.pg_type t
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
join pg_catalog.pg_constraint k on k.contypid = t.oid and k.contype = 'c'
where n.nspname = %(schema)s and t.typname = %(name)s and t.typtype = 'd'
union all
select '', '', true
from pg_catalog.pg_type t
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
where n.nspname = %(schema)s and t.typname = %(name)s and t.typtype = 'd' and t.typnotnull
