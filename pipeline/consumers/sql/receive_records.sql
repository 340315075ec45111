-- Deliver items, each as its JSON text.
select row_to_json(item)::text as item
from pipeline.receive(%(name)s::text, %(max)s::int, make_interval(secs => %(visibility)s::float8)) as item
