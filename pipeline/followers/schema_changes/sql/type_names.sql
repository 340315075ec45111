-- The follower's names of these types, with their modifiers; null for a type that it lacks.
select pg_catalog.format_type(pg_catalog.to_regtype(w.type_name), w.modifier)
from unnest(%(names)s::text[], %(modifiers)s::integer[]) with ordinality w (type_name, modifier, number)
order by w.number
