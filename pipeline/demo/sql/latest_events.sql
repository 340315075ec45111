-- The newest changes, to be shown, with values as text.
select e.seq, e.source_table_name, e.action, e.record_pk,
    (select jsonb_object_agg(key, value) from jsonb_each_text(e.record)),
    (select jsonb_object_agg(key, value) from jsonb_each_text(e.changes))
from public.sequin_events e
where e.seq > %(seq)s and e.action <> 'message'
order by e.seq desc limit %(rows)s
