-- Deliver nothing more.
select from pipeline.pause_consumer(%(name)s::text)
