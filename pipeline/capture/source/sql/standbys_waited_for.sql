-- Read whether synchronized_standby_slots is set; null before Postgres 17. Then the listed slots that no standby reads.
select current_setting('synchronized_standby_slots', true) <> '', array(
    select btrim(listed.name, ' "')
    from unnest(string_to_array(current_setting('synchronized_standby_slots', true), ',')) as listed (name)
    left join pg_catalog.pg_replication_slots s on s.slot_name = btrim(listed.name, ' "')
    where s.active is not true
)
