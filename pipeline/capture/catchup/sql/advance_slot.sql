-- Confirm everything before this LSN without sending it.
select pg_catalog.pg_replication_slot_advance(%(slot)s::name, %(target)s::pg_lsn)
