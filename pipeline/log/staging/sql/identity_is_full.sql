-- Whether rows of a segment can be deleted whatever publication the segment is in.
select relreplident = 'f' as is_full from pg_class where oid = to_regclass(%(table)s::text)
