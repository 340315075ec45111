-- How many seconds a delivery of this consumer is its receiver's.
select extract(epoch from pipeline.visibility_of(%(consumer)s::text))::float8
