-- Step 6: add the items. Unsure items are recorded, and checked again in the next call.
-- Returns for how many items clients may have to be woken: these items are available, or receivers skipped the item in
-- front of them, because it was locked here.
added as (
    insert into public.consumer_records (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq, commit_lsn,
        commit_idx, action, group_id, state, left_pk, is_alone)
    select %(consumer)s, p.source_table_oid, p.record_pk, p.seq, p.seq, p.seq, p.commit_lsn, p.commit_idx, p.action,
        p.line_group, case when p.is_first then 'available' else 'blocked' end,
        p.left_pk, p.is_alone
    from placed p
    on conflict do nothing
    returning state
), unsure as (
    insert into pipeline.consumer_touches (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action)
    select %(consumer)s, p.source_table_oid, p.record_pk, p.seq, p.seq, p.seq, p.commit_lsn, p.commit_idx, p.action
    from placed p where not p.is_sure
    on conflict do nothing
)
select (select count(*) from added a where a.state = 'available') + (select count(*) from placed p where p.hides_front)
