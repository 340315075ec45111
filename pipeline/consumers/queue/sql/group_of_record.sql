-- The text by which a consumer groups items, from the expression `record` (jsonb); null if it lacks one of the columns.
-- A long text is replaced by its digest, as a long record_pk is, because an index cannot contain it.
case when %(group_by)s::text[] is not null and {record} ?& %(group_by)s then (
    select case when octet_length(whole.text) > 2000 then 'sha256:' || encode(sha256(convert_to(whole.text, 'UTF8')), 'hex')
        else whole.text end
    from (select jsonb_agg({record} -> c order by o)::text from unnest(%(group_by)s) with ordinality g (c, o)) whole (text)
) end
