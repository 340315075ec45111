-- Return the place where the log is written now: cluster, timeline, database, and the table that stores this. Values that a
-- provider does not show are null.
create or replace function pipeline.log_place(
    out system_identifier text, out timeline integer, out database_oid bigint, out table_oid bigint)
language plpgsql stable set search_path = ''
as $$
begin
    database_oid := (select d.oid from pg_catalog.pg_database d where d.datname = current_database());
    table_oid := 'pipeline.identity'::regclass::oid;
    begin
        system_identifier := (select c.system_identifier from pg_catalog.pg_control_system() c);
    exception when others then
        null;
    end;
    begin
        -- pg_control_checkpoint has the timeline from before a promotion until the next checkpoint has ended.
        timeline := ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::integer;
    exception when others then
        null;
    end;
end $$;
revoke execute on function pipeline.log_place() from public;
