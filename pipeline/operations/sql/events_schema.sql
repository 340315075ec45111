-- Whether an events table is there, and whether this user may make it.
select to_regclass(%(table)s) is not null as present,
    to_regnamespace(%(schema)s) is not null as schema_present,
    coalesce(has_schema_privilege(to_regnamespace(%(schema)s), 'create'), false) as may_create
