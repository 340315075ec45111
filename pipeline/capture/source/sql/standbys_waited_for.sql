-- Read whether synchronized_standby_slots is set (null before Postgres 17), the listed slots that no standby reads, and
-- the LSN that all listed standbys have; null if the list is empty.
select current_setting('synchronized_standby_slots', true) <> '' as is_set,
    coalesce(array_agg(btrim(listed.name, ' "') order by listed.place) filter (where s.active is not true), '{}') as away,
    min(coalesce((s.restart_lsn - '0/0')::bigint, 0)) as upto
from unnest(string_to_array(current_setting('synchronized_standby_slots', true), ','))
    with ordinality as listed (name, place)
left join pg_catalog.pg_replication_slots s on s.slot_name = btrim(listed.name, ' "')
