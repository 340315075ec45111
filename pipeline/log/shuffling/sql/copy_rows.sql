-- Copy the staged rows of one segment that will be moved to a table with an index, which finds each of them alone.
insert into pg_temp.bisected_rows
select w.* from {segment} w
where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s and w.ordinal >= %(first)s
    and (%(last)s::bigint is null or w.ordinal <= %(last)s)
