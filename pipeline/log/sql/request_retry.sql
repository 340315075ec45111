-- Ask for parked dead letters to be written again.
update pipeline.dead_letters set state = 'retrying', updated_at = clock_timestamp()
where state = 'parked' and (%(ids)s::bigint[] is null or id = any (%(ids)s))
returning id
