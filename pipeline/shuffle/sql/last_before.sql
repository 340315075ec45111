-- The last transaction of a segment before one.
select max(commit_lsn) from only {segment} where commit_lsn > %(after)s and commit_lsn < %(before)s
