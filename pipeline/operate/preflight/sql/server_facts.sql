-- The facts that decide if a server and its database can be used, and the name of the database.
select current_setting('server_version_num')::int as version,
    current_setting('server_version') as shown_version,
    current_setting('transaction_read_only') = 'on' as read_only,
    pg_is_in_recovery() as standby,
    pg_encoding_to_char(d.encoding)::text as encoding,
    d.datname::text as database
from pg_database d
where d.datname = current_database()
