-- Step 4 with group_by: find the group of each item. An event that lacks the columns stays in the last group of its
-- row.
counted as materialized (
    select i.*, count(i.group_id) over (partition by i.source_table_oid, i.record_pk order by i.seq) as groups from items i
), named as materialized (
    select c.*, coalesce(
        first_value(c.group_id) over (partition by c.source_table_oid, c.record_pk, c.groups order by c.seq),
        case when not c.is_alone then (
            select r.group_id from public.consumer_records r
            where r.consumer_id = %(consumer)s and r.source_table_oid = c.source_table_oid and r.record_pk = c.record_pk
                and r.unkeyed > 0 and not r.is_alone
            order by r.unkeyed desc limit 1
        ) end,
        c.source_table_oid || case when c.is_alone then '#' || c.seq else '/' || c.record_pk end
    ) collate "default" as line_group  -- the collation of the index
    from counted c
)
