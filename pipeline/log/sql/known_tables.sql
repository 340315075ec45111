-- List every events table that was ever written to, with its counts.
select t.name, max(t.last_seq) as last_seq, sum(t.events)::bigint as events, max(t.updated_at) as updated_at,
    to_regclass(format('%I.%I', split_part(t.name, '.', 1), split_part(t.name, '.', 2))) is not null as present
from pipeline.events_tables t
group by t.name
order by t.name
