-- Step 6 of settling unsure items: make those items available that are first in their lines. Returns for how many items
-- clients may have to be woken.
moved as (
    update public.consumer_records r set state = 'available'
    from placed p
    cross join lateral (
        select true from public.consumer_records o
        where o.consumer_id = %(consumer)s and o.source_table_oid = p.source_table_oid and o.record_pk = p.record_pk
            and o.unkeyed = p.seq and o.state = 'blocked'
        for no key update skip locked
    ) own
    where p.is_first and r.consumer_id = %(consumer)s and r.source_table_oid = p.source_table_oid
        and r.record_pk = p.record_pk and r.unkeyed = p.seq
    returning r.source_table_oid, r.record_pk, r.unkeyed
), settled as (
    delete from pipeline.consumer_touches t
    where t.consumer_id = %(consumer)s and (t.source_table_oid, t.record_pk, t.unkeyed) not in (
        select p.source_table_oid, p.record_pk, p.seq from placed p where p.is_first or not p.is_sure
        except
        select m.source_table_oid, m.record_pk, m.unkeyed from moved m)
)
select (select count(*) from moved) + (select count(*) from placed p where p.hides_front)
