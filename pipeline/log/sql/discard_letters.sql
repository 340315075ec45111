-- Parked letters are given up; those that are being written again are left alone.
update pipeline.dead_letters set state = 'discarded', updated_at = clock_timestamp()
where state = 'parked' and (%(ids)s::bigint[] is null or id = any (%(ids)s))
returning id
