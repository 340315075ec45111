-- The seq after which every event of an events table is kept; null: of the default one.
create or replace function pipeline.log_floor(events_table text) returns bigint
language sql stable set search_path = ''
as $$
    -- Every event after this seq is kept: retention may have deleted the first rows of the first partition.
    select pipeline.before_jump(log_floor.events_table, greatest(
        coalesce(min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint) - 1, 0),
        coalesce(max((
            select r.dropped_below - 1
            from pipeline.retention r
            join pg_class t on t.oid = log.oid
            join pg_namespace n on n.oid = t.relnamespace
            where r.events_table = n.nspname || '.' || t.relname
        )), 0)))
    from (
        select d.refobjid as oid
        from pg_rewrite w
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
            and d.refobjid <> w.ev_class
        where log_floor.events_table is null and w.ev_class = 'pipeline.events'::regclass and d.refobjsubid = 1
        union all
        select to_regclass(pipeline.events_relation(log_floor.events_table)) where log_floor.events_table is not null
    ) log
    left join pg_inherits i on i.inhparent = log.oid and not i.inhdetachpending
    left join pg_class c on c.oid = i.inhrelid
$$;
revoke execute on function pipeline.log_floor(events_table text) from public;

-- The seq after which every event of the default one is kept.
create or replace function pipeline.log_floor() returns bigint
language sql stable set search_path = ''
as $$
    select pipeline.log_floor(null)
$$;
revoke execute on function pipeline.log_floor() from public;
