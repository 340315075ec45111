-- Count the rows of whole transactions that a segment has to move.
select count(*) from {segment} w where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s{bounds}
