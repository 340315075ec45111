-- Remove a leaf that was detached or dropped.
delete from pipeline.partitions where source_id = %(source)s and root_oid = %(root_oid)s and leaf_oid = %(leaf_oid)s
