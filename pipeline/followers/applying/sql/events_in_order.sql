-- Return the events of a table in a range one by one, for a table in which each event counts.
select case when e.action in ('insert', 'update') and e.lenient and {keyed} and missing.columns is null then 'upsert'
        when e.action = 'read' then case when {keyed} then 'upsert' else 'insert' end
        when e.action = 'update' and {changes_key} then 'move'
        else e.action end as operation,
    e.seq, missing.columns is null as whole,
    case when e.action <> 'truncate' then {element} end as element,
    e.source_table_oid as table
from (
    select *, {lenient} as lenient
    from (select * from {events} where seq > {after} and seq <= {upto} offset 0) e
    where e.source_database_id = {source} and e.source_table_oid = {table}
        and ({counts} or e.action = 'truncate' and not {in_copy})
) e
cross join lateral (select case when e.action not in ('delete', 'truncate') then {row} end as row) r
cross join lateral (
    select case when not r.row ?& {columns} then array(select c from unnest({columns}) c where not r.row ? c) end as columns
) missing
