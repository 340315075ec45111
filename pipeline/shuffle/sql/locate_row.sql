-- Which change a copied row is.
select concat_ws('.', nullif(r.table_schema, ''), r.table_name), w.commit_lsn, w.commit_idx, w.action
from pg_temp.bisected_rows w left join pipeline.relations r on r.id = w.relation_id
where w.ordinal = %(ordinal)s
