-- Whether the schema of an events table exists, and whether this user may create the table.
select to_regnamespace(%(schema)s) is not null as present,
    coalesce(has_schema_privilege(to_regnamespace(%(schema)s), 'create'), false) as may_create,
    current_user::text as user_name
