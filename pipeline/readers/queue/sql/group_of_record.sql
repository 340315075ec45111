-- The text by which a consumer groups items, of the expression `record` (jsonb); null where it lacks a column of those.
case when %(group_by)s::text[] is not null and {record} ?& %(group_by)s then (
    select jsonb_agg({record} -> c order by o)::text from unnest(%(group_by)s) with ordinality g (c, o)
) end
