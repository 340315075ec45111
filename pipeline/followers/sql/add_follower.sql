-- Store a follower, which needs the events of the log after `seq`.
insert into pipeline.followers (source_id, name, dsn, tables, copy, schema_mode, ddl, on_rewrite, truncates,
    system_identifier, database_oid, database_name, made_seq, seq, commit_lsn, committed_at, reason, remedy)
values (%(source)s, %(name)s, %(dsn)s, %(tables)s, %(copy)s, %(schema)s, %(ddl)s, %(on_rewrite)s, %(truncate)s,
    %(system_identifier)s, %(database_oid)s, %(database_name)s, pipeline.log_head(), %(seq)s, %(commit_lsn)s,
    %(committed_at)s, %(reason)s, %(remedy)s)
returning id
