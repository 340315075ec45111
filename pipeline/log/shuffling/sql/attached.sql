-- Record that these tables are partitions.
with ended as (delete from pipeline.adopted_tables where id = any(%(ids)s))
update pipeline.adoptions set held_by = null, updated_at = now() where source_id = %(source)s and held_by is not null
