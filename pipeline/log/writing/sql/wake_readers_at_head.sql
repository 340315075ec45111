-- Wake the readers, if the transaction before this one has written the events up to that seq: where it fails, that
-- setting is as it was.
select pg_notify(%(channel)s, $1::text) where current_setting('pipeline.written_up_to', true) = $2::text
