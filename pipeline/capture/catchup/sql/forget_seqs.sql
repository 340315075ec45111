-- What is read of a part is staged from now on.
update pipeline.catchup_parts set first_seq = null where source_id = %(source)s and worker = %(worker)s
