-- Of source texts of json values, those that jsonb does not give back as they were, as `move_segment` keeps them.
select w.place, (
    select jsonb_object_agg(e.key, e.value) from jsonb_each_text(w.exact::jsonb) e
    where (w.record::jsonb -> e.key)::text is distinct from e.value
        or w.record::jsonb -> e.key = 'null'::jsonb
)::text
from unnest(%(places)s::integer[], %(records)s::text[], %(exacts)s::text[]) as w (place, record, exact)
