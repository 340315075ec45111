-- Start a consumer again at another place in the log.
select from pipeline.reset_consumer(%(name)s::text, %(start)s::text)
