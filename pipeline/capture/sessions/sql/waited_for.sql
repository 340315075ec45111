-- The transaction whose end a walsender waits for, and whose it is: a session's, or one that was prepared.
select holder.pid, a.usename::text, a.application_name, a.state, a.xact_start::text, p.gid is not null as prepared
from pg_catalog.pg_locks waiting
left join pg_catalog.pg_locks holder on holder.locktype = 'transactionid' and holder.granted
    and holder.transactionid = waiting.transactionid
left join pg_catalog.pg_stat_activity a on a.pid = holder.pid
left join pg_catalog.pg_prepared_xacts p on p.transaction = waiting.transactionid
where waiting.pid = %(pid)s and waiting.locktype = 'transactionid' and not waiting.granted
