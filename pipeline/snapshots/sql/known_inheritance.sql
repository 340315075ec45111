-- Which tables inherit from which, as it was stored last.
select k.child_oid, k.parent_oid
from (
    select distinct on (h.child_oid, h.parent_oid) h.child_oid, h.parent_oid, h.inherits from pipeline.inheritance h
    where h.source_id = %(source)s
    order by h.child_oid, h.parent_oid, h.id desc
) k where k.inherits
