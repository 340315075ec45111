-- Replace the row that cannot be written by one for an event without values.
update pg_temp.bisected_rows
set record = '{}', changes = null, exact = null, unchanged_columns = null,
    -- Recovered rows are in a transaction of only such rows.
    metadata = case when coalesce(metadata::jsonb ? 'recovered', false)
        then (metadata::jsonb || %(metadata)s::text::jsonb)::text else %(metadata)s::text end,
    transaction_annotations = case when %(annotated)s or transaction_annotations is null then transaction_annotations
        else '{}' end
where ordinal = %(ordinal)s
