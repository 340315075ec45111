-- Forget a consumer and what it has not acknowledged.
select from pipeline.drop_consumer(%(name)s::text)
