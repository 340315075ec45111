-- Begin anew, at another place of the log.
select from pipeline.reset_consumer(%(name)s::text, %(start)s::text)
