-- What an events table is partitioned by, null when it is not.
select pg_get_partkeydef(%(table)s::regclass)
