-- What this session's search path makes of the names of column types, in the order given; `???` where one is gone.
select pg_catalog.format_type(c.type, c.modifier)
from unnest(%(types)s::oid[], %(modifiers)s::integer[]) with ordinality as c(type, modifier, place)
order by c.place
