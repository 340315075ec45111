-- For the transaction: so many milliseconds for a statement, unless the role has less.
select pg_catalog.set_config('statement_timeout', %(most)s::text, true) from pg_catalog.pg_settings
where name = 'statement_timeout' and (setting::bigint = 0 or setting::bigint > %(most)s)
