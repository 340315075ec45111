-- How many rows of whole transactions a segment has to be moved.
select count(*) from {segment} w where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s{bounds}
