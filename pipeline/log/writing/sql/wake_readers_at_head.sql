-- Wake the readers if the previous transaction has written the events up to that seq: if it failed, the setting was rolled
-- back.
select pg_notify(%(channel)s, $1::text) where current_setting('pipeline.written_up_to', true) = $2::text
