-- What the search path makes of the names of column types, in the order given; `???` where one is gone.
select pg_catalog.format_type(c.type, c.modifier)
from unnest(%(types)s::pg_catalog.oid[], %(modifiers)s::integer[]) with ordinality as c(type, modifier, place)
order by c.place
