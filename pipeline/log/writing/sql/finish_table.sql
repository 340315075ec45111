-- What a partition has, and a check from which the server knows that all rows fit. One command that is no ALTER: after one
-- psycopg would take the session's prepared statements away. Analyzed are the columns of both indexes, and the action, which
-- is asked for beside them: JSON took three quarters of all this, and autovacuum does it once it is a partition.
do $$ begin
    alter table {table} add primary key (seq);
    create index on {table} (source_database_id, source_table_oid, record_pk, seq);
    alter table {table} add constraint adopted_seqs check (seq >= {first} and seq <= {last});
    analyze {table} (seq, source_database_id, source_table_oid, record_pk, action);
end $$
