-- Give up parked dead letters; those that are being retried stay as they are.
update pipeline.dead_letters set state = 'discarded', updated_at = clock_timestamp()
where state = 'parked' and (%(ids)s::bigint[] is null or id = any (%(ids)s))
returning id
