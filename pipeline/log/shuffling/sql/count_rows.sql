-- Count the rows of whole transactions that a segment has to move, by relation and action, and messages by prefix.
select w.relation_id, w.action, case when w.action = 'message' then w.record_pk end as prefix, count(*), max(w.ordinal)
from {segment} w
where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s{bounds}
group by w.relation_id, w.action, prefix
