-- The text by which a consumer groups items, from the expression `record` (jsonb); null where it lacks one of the columns.
case when %(group_by)s::text[] is not null and {record} ?& %(group_by)s then (
    select jsonb_agg({record} -> c order by o)::text from unnest(%(group_by)s) with ordinality g (c, o)
) end
