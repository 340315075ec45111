-- Step 4 without group_by: every item has the empty group.
named as materialized (
    select i.*, ''::text as line_group from items i
)
