-- Step 3 of applying the log: which items each event changes, and how. An item's `record` is only set where its row is
-- not in the log under that key.
items as materialized (
    -- The row itself; a row without a key is a separate item for each event.
    select coalesce(k.root_oid, k.source_table_oid) as source_table_oid, k.record_pk,
        case when k.has_pk or cardinality(k.key_columns) > 0 and k.action <> 'truncate' then 0 else k.seq end as unkeyed,
        k.seq, k.seq as queued_seq, k.commit_lsn, k.commit_idx, k.action, null::jsonb as record, k.group_id,
        k.action = 'truncate' and k.source_table_oid = coalesce(k.root_oid, k.source_table_oid) as empties
    from keyed k
    where %(actions)s::text[] = '{{}}' or k.action = any (%(actions)s)
    union all
    -- A row whose key changed is a delete under the old key.
    select k.source_table_oid, old.record_pk, 0, k.seq, k.seq, k.commit_lsn, k.commit_idx, 'delete', old.record,
        ({old_group}) as group_id, false
    from keyed k
    cross join lateral (
        select e.record || k.changes as record from {events} e
        where e.seq = k.seq and k.changes ?| k.key_columns limit 1
    ) was
    cross join lateral ({old_key}) old
    where old.record_pk <> k.record_pk and (%(actions)s::text[] = '{{}}' or 'delete' = any (%(actions)s))
    union all
    -- Changes that an earlier run had to defer.
    select t.source_table_oid, t.record_pk, t.unkeyed, t.seq, t.queued_seq, t.commit_lsn, t.commit_idx, t.action,
        t.record, t.group_id, false
    from pipeline.consumer_touches t where t.consumer_id = %(consumer)s
)
