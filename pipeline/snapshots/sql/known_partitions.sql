-- The leaves of tables as the last look saw them.
select root_oid, leaf_oid, leaf_name, attached_by from pipeline.partitions where source_id = %(source)s
