-- A backfill has ended.
update pipeline.backfills set state = %(state)s, reason = %(reason)s, finished_at = now()
where id = %(id)s and state in ('waiting', 'reading', 'paused')
