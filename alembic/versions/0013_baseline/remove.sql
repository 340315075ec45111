-- Remove what the migration has made but the events table, and the functions. Refused where other workers than the first have staged what
-- would be lost.
do $$ begin
    if exists (select from pipeline.catchup_parts) then
        raise exception 'a catch-up is going on; start the server and let it end first'
            using errcode = 'object_not_in_prerequisite_state';
    end if;
end $$;
drop view if exists pipeline.readers;
drop view if exists pipeline.advisory_locks;
do $$ declare made text; begin
    select string_agg(p.oid::regprocedure::text, ', ') into made
    from pg_proc p where p.pronamespace = 'pipeline'::regnamespace;
    if made is not null then
        execute 'drop function ' || made;
    end if;
end $$;
drop view if exists pipeline.receivable;
drop view pipeline.reached_workers, pipeline.events;
drop table pipeline.roles, pipeline.worker_load, pipeline.wal_written, pipeline.lag_samples, pipeline.export_states,
    pipeline.exports, pipeline.export_runs, pipeline.lakes, pipeline.consumer_touches, public.consumer_records,
    pipeline.consumer_progress, pipeline.consumers, pipeline.dead_letters, pipeline.known_rows, pipeline.retention,
    pipeline.routes, pipeline.events_tables, pipeline.shuffle_progress, pipeline.catchup_parts,
    pipeline.replication_progress, pipeline.segments, pipeline.published_forms, pipeline.rewrites, pipeline.relations,
    pipeline.source_stops, pipeline.carried_transactions, pipeline.epochs, pipeline.sources;
drop table public.wal_events cascade;
