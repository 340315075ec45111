-- Settle changes of partitions without a change of the log.
update pipeline.partition_changes set settled_at = now(), settled_as = 'kept'
where source_id = %(source)s and root_oid = %(root)s and settled_at is null
    and (what in ('detached', 'dropped', 'truncated') or reason is not null or exists (
        select from pipeline.backfills b where b.id = backfill_id and b.state in ('failed', 'cancelled')))
