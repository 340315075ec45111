-- Events between two positions, and earlier reads of these tables; every value as text.
select e.seq, e.commit_lsn, e.commit_idx, e.xid, e.source_table_schema || '.' || e.source_table_name, e.action,
    case when e.record_pk like '[%%' then array(select jsonb_array_elements_text(e.record_pk::jsonb))
        else array[e.record_pk] end,
    coalesce((select jsonb_object_agg(key, value) from jsonb_each_text(e.record)), '{}'),
    (select jsonb_object_agg(key, value) from jsonb_each_text(e.changes))
from public.sequin_events e
where (e.seq > %(after)s or e.source_table_oid = any(%(tables)s)) and e.seq < %(until)s and e.action <> 'message'
order by e.seq
