-- The seq of each dead letter of a consumer up to one.
select r.seq from public.consumer_records r
where r.consumer_id = (pipeline.consumer_of(%(name)s::text, 'records')).id and r.state = 'dead'
    and r.seq <= %(through)s::bigint
