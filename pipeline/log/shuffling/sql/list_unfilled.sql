-- List staged rows that lack unchanged values, in their order.
select w.ordinal, w.relation_id, w.known_pk, w.record_pk,
    array(select jsonb_array_elements_text(w.unchanged_columns::jsonb)) as columns
from {rows} w
order by w.ordinal
