-- What a copy of a slot begins with; a slot's name is letters, digits and _.
select catalog_xmin, (confirmed_flush_lsn - '0/0')::bigint from pg_catalog.pg_replication_slots
where slot_name = '{name}'
