-- Where a copy of a slot begins; a slot's name has only letters, digits and _.
select catalog_xmin, (confirmed_flush_lsn - '0/0')::bigint from pg_catalog.pg_replication_slots
where slot_name = '{name}'
