do $$ begin
    alter table {events} attach partition {table} for values from ({first}) to ({end});
    alter table {table} drop constraint adopted_seqs, reset (autovacuum_enabled, toast.autovacuum_enabled);
end $$
