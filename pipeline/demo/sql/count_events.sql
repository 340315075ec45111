-- How often each table was changed, and how, up to a seq.
select source_table_schema || '.' || source_table_name, action, count(*)
from public.sequin_events
where source_table_oid <> 0 and seq <= %(upto)s
group by 1, 2
