-- Select staged rows of one segment, of whole transactions, each with its seq. Ordinals follow (commit_lsn, commit_idx) without
-- gaps, so seq does too, and nothing has to be sorted.
select w.*, w.ordinal + %(offset)s as seq
from {segment} w
where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s{bounds}
