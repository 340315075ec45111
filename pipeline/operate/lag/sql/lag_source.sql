-- The source's end of WAL and its clock, the positions of our slot's walsender, and whether a sampler runs.
select ((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end) - '0/0')::bigint
    as written,
    clock_timestamp() as read_at, a.wait_event,
    (r.sent_lsn - '0/0')::bigint as sent, (r.write_lsn - '0/0')::bigint as received,
    (r.replay_lsn - '0/0')::bigint as staged,
    (select t.spill_bytes from pg_stat_replication_slots t where t.slot_name = %(slot)s::text) as spilled_bytes,
    exists (
        select from pg_stat_activity l
        where l.application_name = %(sampler)s::text and l.state_change > clock_timestamp() - interval '3 seconds'
    ) as sampled
from (select %(sender)s::int as sender) asked
left join pg_stat_replication r on r.pid = asked.sender
left join pg_stat_activity a on a.pid = asked.sender
