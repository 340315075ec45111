-- The sessions whose snapshot can be read: the connection that exported it is there, and does not stream yet.
select s.slot
from unnest(%(slots)s::text[]) as s (slot)
where exists (
    select from pg_stat_activity a
    where a.application_name = 'pipeline session ' || s.slot and a.state = 'idle in transaction'
        and a.backend_type = 'walsender'
)
