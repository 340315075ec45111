-- The rows of these tables are events; whatever else is of their run, or was before it, is moved too: its rows have
-- committed before these.
with ended as (update pipeline.adopted_tables set state = 'moved' where id = any(%(ids)s))
update pipeline.adoptions set moved_run = greatest(moved_run, %(run)s), held_by = null, updated_at = now()
where source_id = %(source)s
