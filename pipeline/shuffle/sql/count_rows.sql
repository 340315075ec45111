-- What a segment holds of whole transactions that are to be moved, by relation and action.
select w.relation_id, w.action, count(*), max(w.ordinal)
from only {segment} w
where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s{bounds}
group by w.relation_id, w.action
