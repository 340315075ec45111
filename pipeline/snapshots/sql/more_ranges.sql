-- A backfill has more ranges than were planned, or others.
update pipeline.backfills set ranges_all = ranges_all + %(added)s, files = coalesce(%(files)s, files) where id = %(id)s
