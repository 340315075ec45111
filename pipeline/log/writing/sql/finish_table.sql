-- Give a table the indexes of a partition, and a check by which the server knows that all rows fit. It is one command and no
-- ALTER, after which psycopg would deallocate the session's prepared statements. It analyzes the columns of both indexes and
-- the action, by which queries filter. Analyzing the JSON took three quarters of the time; autovacuum does that later.
do $$ begin
    alter table {table} add primary key (seq);
    create index on {table} (source_database_id, source_table_oid, record_pk, seq);
    alter table {table} add constraint adopted_seqs check (seq >= {first} and seq <= {last});
    analyze {table} (seq, source_database_id, source_table_oid, record_pk, action);
end $$
