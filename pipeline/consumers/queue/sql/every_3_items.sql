-- Step 3 of applying the log if each event is an item: make an item of each event. `left_pk`: the old key, if the event
-- changes the row's key.
items as materialized (
    select coalesce(k.root_oid, k.source_table_oid) as source_table_oid, k.record_pk, k.seq, k.commit_lsn, k.commit_idx,
        k.action, case when was.record_pk <> k.record_pk then was.record_pk end as left_pk,
        -- Rows without a key, messages and truncates are in no row's line.
        not k.has_pk and coalesce(cardinality(k.key_columns), 0) = 0 or k.action = 'truncate' as is_alone,
        k.group_id, false as is_queued
    from keyed k
    left join lateral (
        select old.record_pk
        from (
            select e.record || k.changes as record from {events} e
            where e.seq = k.seq and k.changes ?| k.key_columns limit 1
        ) was
        cross join lateral ({old_key}) old
    ) was on true
    where %(actions)s::text[] = '{{}}' or k.action = any (%(actions)s)
)
