-- Delete a consumer, with its unacknowledged items.
select from pipeline.drop_consumer(%(name)s::text)
