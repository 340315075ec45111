-- What types are called at the follower, with their modifiers; null for one that it does not have.
select pg_catalog.format_type(pg_catalog.to_regtype(w.type_name), w.modifier)
from unnest(%(names)s::text[], %(modifiers)s::integer[]) with ordinality w (type_name, modifier, place)
order by w.place
