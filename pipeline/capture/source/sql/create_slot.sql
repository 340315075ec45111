-- A slot for pgoutput without two-phase.
select lsn::text from pg_create_logical_replication_slot(%(name)s, 'pgoutput')
