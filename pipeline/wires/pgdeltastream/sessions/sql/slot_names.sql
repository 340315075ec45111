-- The names of all slots of the cluster, of every kind and database.
select slot_name::text from pg_catalog.pg_replication_slots
