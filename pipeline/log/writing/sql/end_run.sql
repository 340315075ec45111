-- End a run; transactions up to `not_before` are staged.
update pipeline.adoptions set from_seq = null, not_before = greatest(not_before, %(not_before)s), updated_at = now()
where source_id = %(source)s and generation = %(generation)s
