-- What an events table is partitioned by; null when it is not partitioned.
select pg_get_partkeydef(%(table)s::regclass)
