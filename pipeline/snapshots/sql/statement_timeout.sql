-- How many milliseconds a statement of this session may take; 0: no limit.
select s.setting::pg_catalog.int8 from pg_catalog.pg_settings s where s.name operator(pg_catalog.=) 'statement_timeout'
