-- The stored leaves of tables.
select root_oid, leaf_oid, leaf_name, attached_by from pipeline.partitions where source_id = %(source)s
