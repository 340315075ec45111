-- Deliver again.
select from pipeline.resume_consumer(%(name)s::text)
