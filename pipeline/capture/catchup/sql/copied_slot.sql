-- The catalog_xmin of a slot's copy, and the position at which the copy begins. A slot's name has only letters,
-- digits and _.
select catalog_xmin, (confirmed_flush_lsn - '0/0')::bigint from pg_catalog.pg_replication_slots
where slot_name = '{name}'
