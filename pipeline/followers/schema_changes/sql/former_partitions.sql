-- The partitions that a table of the source has had, as checks of the catalog found: name, oid, and true if it has left.
select p.leaf_name, p.leaf_oid, false from pipeline.partitions p
where p.source_id = %(source)s and p.root_oid = %(root)s
union all
select c.leaf_name, c.leaf_oid, true from pipeline.partition_changes c
where c.source_id = %(source)s and c.root_oid = %(root)s and c.what in ('detached', 'dropped')
