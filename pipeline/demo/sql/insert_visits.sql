-- Some visits, one of which is deleted.
with new as (
    insert into shop.visits (page) select '/tea/' || %(number)s::int || '/' || n from generate_series(1, 5) n returning id
)
delete from shop.visits where id = (select min(id) from new) - 3
