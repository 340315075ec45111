-- Confirm up to here, without sending what comes before.
select pg_catalog.pg_replication_slot_advance(%(slot)s::name, %(target)s::pg_lsn)
