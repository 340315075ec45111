-- List the tables that come next: up to the first one that ends with a whole transaction, and at most `more` behind it.
-- Before the first run, parts may be moved.
select id, events_table, table_name, attaches and run > coalesce(moved_run, 0) as attaches, run, ends, first_seq, last_seq,
    first_lsn, last_lsn, relations
from (
    select t.*, a.moved_run, coalesce(count(*) filter (where t.ends) over (order by t.first_seq
        rows between unbounded preceding and 1 preceding), 0) as earlier
    from pipeline.adopted_tables t left join pipeline.adoptions a using (source_id)
    where t.source_id = %(source)s and t.state = 'waiting'
) t
where earlier <= %(more)s
order by first_seq
