-- the newest events
select seq, commit_lsn, commit_idx, source_table_name, action, record_pk from sequin_events order by seq desc limit 10;

-- the life of one order line's stock: what it was before and after each change
select seq, committed_at, changes->>'on_hand' as before, record->>'on_hand' as after
from sequin_events where source_table_name = 'stock' and record_pk = 'SEN-100' order by seq desc limit 10;

-- the largest transaction, whole and in order
select seq, commit_idx, source_table_name, action, record from sequin_events
where commit_lsn = (select commit_lsn from sequin_events group by 1 order by count(*) desc limit 1) order by seq;

-- follow the log: remember the last seq you have read, ask for what is after it
select seq, source_table_name, action, record from sequin_events where seq > 0 order by seq limit 100;
