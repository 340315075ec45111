-- Relations that were truncated since a seq, with the place of the last truncate.
select e.source_table_oid, max(e.seq), max(e.commit_lsn)
from unnest(%(oids)s::bigint[]) oid
join {events} e on e.source_database_id = %(source)s and e.source_table_oid = oid and e.record_pk = '' and e.seq > %(after)s
where e.action = 'truncate' and e.source_epoch = %(epoch)s
group by e.source_table_oid
