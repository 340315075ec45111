-- Return the source texts of json values that jsonb does not return unchanged, as `move_segment` keeps them: one row for
-- each record of the first array, in its order. The second array has the texts of each record.
select (
    select jsonb_object_agg(e.key, e.value) from jsonb_each_text(w.exact::jsonb) e
    where (w.record::jsonb -> e.key)::text is distinct from e.value
        or w.record::jsonb -> e.key = 'null'::jsonb
)::text
from unnest($1::text[], $2::text[]) with ordinality as w (record, exact, place)
order by w.place
