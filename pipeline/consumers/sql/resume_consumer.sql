-- Resume a consumer.
select from pipeline.resume_consumer(%(name)s::text)
