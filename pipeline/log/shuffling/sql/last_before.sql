-- Find the last transaction of a segment before another one.
select max(commit_lsn) from {segment} w where commit_lsn > %(after)s and commit_lsn < %(before)s
