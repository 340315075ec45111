-- Read which change a copied row is, and the text that replaces its record if that was too long to be staged.
select concat_ws('.', nullif(r.table_schema, ''),
        case when w.action = 'message' then coalesce(nullif(r.table_name, ''), w.record_pk) else r.table_name end), w.commit_lsn, w.commit_idx, w.action,
    case when w.record like 'a row of %%' then w.record end
from pg_temp.bisected_rows w left join pipeline.relations r on r.id = w.relation_id
where w.ordinal = %(ordinal)s
