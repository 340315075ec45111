-- What came after `seq`, in order: how any SQL reader follows the log.
select seq, xid, source_table_name, action, case when action = 'message' then record ->> 'content' end
from public.sequin_events where seq > %(seq)s order by seq limit 1000
