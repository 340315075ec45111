-- Names of types to which a condition must not cast. Types whose names begin with reg read catalogs without waiting for
-- locks, and show what exists there. Row types of catalogs and pseudo-types have no use here. Users' types may run functions.
select used.name
from pg_catalog.unnest(%(types)s::pg_catalog.text[]) used (name)
where used.name ~ '^(reg|_|aclitem|gtsvector)' or (used.name ~ '^pg_' and used.name <> 'pg_lsn')
    or not exists (
        select from pg_catalog.pg_type t
        where t.typname = used.name and t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace
            and t.oid < 16384 and t.typtype in ('b', 'r', 'm')
    )
order by 1
