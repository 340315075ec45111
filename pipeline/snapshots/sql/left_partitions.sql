-- Leaves that have left a table while the log has their rows, as far as is known.
select distinct c.root_oid, c.leaf_oid from pipeline.partition_changes c
where c.source_id = %(source)s and c.what in ('detached', 'dropped')
    and coalesce(c.settled_as, 'kept') = 'kept'
