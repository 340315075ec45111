-- Step 4 without group_by: no item is in a group.
named as materialized (
    select i.*, ''::text as line_group from items i
)
