-- Remove edges of tables that were dropped.
delete from pipeline.inheritance h
using unnest(%(children)s::bigint[], %(parents)s::bigint[]) e (child, parent)
where h.source_id = %(source)s and h.child_oid = e.child and h.parent_oid = e.parent
