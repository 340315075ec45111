-- Select the staged rows of one segment that go to one events table, each with its seq: in their order, without gaps.
select w.*, row_number() over (order by w.ordinal) - 1 + %(offset)s as seq
from {segment} w
join unnest(%(relations)s::integer[], %(actions)s::text[], %(prefixes)s::text[]) as mine (relation, action, prefix)
    on mine.relation = w.relation_id and mine.action = w.action and coalesce(mine.prefix = w.record_pk, true)
where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s{bounds}
