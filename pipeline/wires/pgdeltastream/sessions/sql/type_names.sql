-- The names of column types in the current search path, in the order given; `???` for a type that no longer exists.
select pg_catalog.format_type(c.type, c.modifier)
from unnest(%(types)s::pg_catalog.oid[], %(modifiers)s::integer[]) with ordinality as c(type, modifier, place)
order by c.place
