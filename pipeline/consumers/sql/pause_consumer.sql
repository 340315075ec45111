-- Pause a consumer.
select from pipeline.pause_consumer(%(name)s::text)
