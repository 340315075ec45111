-- Whether rows of partitions that leave from now on stay in the log without a warning.
update pipeline.snapshot_tables set keeps_partitions = %(always)s where source_id = %(source)s and table_oid = %(root)s
