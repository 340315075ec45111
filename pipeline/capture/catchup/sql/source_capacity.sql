-- The source's version, and how many replication slots and walsenders it may have and has free. A walsender does not
-- count as free if a session will need it: the session's slot exists, and no client is connected for it.
select current_setting('server_version_num')::int as version,
    current_setting('max_replication_slots')::int as max_slots,
    (current_setting('max_replication_slots')::int - (select count(*) from pg_replication_slots))::int as free_slots,
    current_setting('max_wal_senders')::int as max_senders,
    (current_setting('max_wal_senders')::int - (select count(*) from pg_stat_get_wal_senders()) - kept.senders)::int
        as free_senders,
    kept.senders as kept_senders
from (
    select count(*)::int as senders
    from pg_replication_slots s
    where s.slot_name = any(%(sessions)s::text[]) and s.active_pid is null and not exists (
        select from pg_stat_activity a
        where a.application_name = 'pipeline session ' || s.slot_name and a.backend_type = 'walsender'
    )
) kept
