-- The last transaction of a segment before one.
select max(commit_lsn) from {segment} w where commit_lsn > %(after)s and commit_lsn < %(before)s
