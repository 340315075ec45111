-- True if this user may call pipeline.before_jump.
select case when to_regnamespace('pipeline') is null then false
    when not has_schema_privilege('pipeline', 'usage') then false
    when to_regprocedure('pipeline.before_jump(text, bigint)') is null then false
    else has_function_privilege('pipeline.before_jump(text, bigint)', 'execute') end
