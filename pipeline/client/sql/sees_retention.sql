-- True if this user may read pipeline.retention, which shows what was dropped.
select case when to_regnamespace('pipeline') is null then false
    when not has_schema_privilege('pipeline', 'usage') then false
    when to_regclass('pipeline.retention') is null then false
    else has_table_privilege('pipeline.retention', 'select') end
