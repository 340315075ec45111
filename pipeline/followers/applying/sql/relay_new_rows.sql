-- Return the rows that a range of events adds to a table, if all events add rows. Rows that lack a value are left out.
select {values}
from (
    -- Read a record that is stored out of line once, not for each value.
    select e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.exact, e.record || '{{}}' as record
    from (select * from {events} where seq > {after} and seq <= {upto} offset 0) e
    where e.source_database_id = {source} and e.source_table_oid = {table} and {counts}
    offset 0
) e
where e.record ?& {names}
