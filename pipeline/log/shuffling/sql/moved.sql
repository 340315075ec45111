-- Record that the rows of these tables are events. The other tables of their run and of earlier runs are moved too, since
-- their rows have committed before these.
with ended as (update pipeline.adopted_tables set state = 'moved' where id = any(%(ids)s))
update pipeline.adoptions set moved_run = greatest(moved_run, %(run)s), held_by = null, updated_at = now()
where source_id = %(source)s
