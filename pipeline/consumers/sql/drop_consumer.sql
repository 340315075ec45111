-- Delete a consumer, with what it has not acknowledged.
select from pipeline.drop_consumer(%(name)s::text)
