-- The oids of a source's types of this name, and of their array types, in the logged versions of its tables.
select distinct (c ->> 'type_oid')::bigint
from pipeline.relations r cross join jsonb_array_elements(r.columns) c
where r.source_id = %(source)s and c ->> 'type_name' in (quote_ident(%(schema)s) || '.' || quote_ident(%(name)s),
    quote_ident(%(schema)s) || '.' || quote_ident(%(name)s) || '[]')
