-- Find the session that prevents attaching: the one that has locked the events table, or a waiting table, the longest.
update pipeline.adoptions a
set held_by = coalesce((
        select format('pid %%s%%s has %%s on %%s', s.pid, coalesce(' (' || nullif(s.application_name, '') || ')', ''), l.mode,
            l.relation::regclass)
        from pg_locks l join pg_stat_activity s on s.pid = l.pid
        where l.granted and l.locktype = 'relation' and l.pid <> pg_backend_pid()
            and l.database = (select oid from pg_database where datname = current_database())
            and (l.relation = %(events)s::regclass and l.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
                or l.relation = any(%(tables)s::regclass[]))
        order by s.xact_start limit 1), 'a lock that is free again'),
    updated_at = now()
where source_id = %(source)s
returning held_by
