-- The seconds for which a delivery of this consumer belongs to its receiver.
select extract(epoch from pipeline.visibility_of(%(consumer)s::text))::float8
