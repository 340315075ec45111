-- The staged rows of one segment that are to be moved, by themselves, so that one of them is found without the others.
insert into pg_temp.bisected_rows
select w.* from {segment} w
where w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s and w.ordinal >= %(first)s
    and (%(last)s::bigint is null or w.ordinal <= %(last)s)
