-- All that the shop sells.
insert into shop.stock (sku, title, price, on_hand, tags)
select s.sku, s.title, s.price, 200, array['tea', s.tea]
from unnest(%(skus)s::text[], %(titles)s::text[], %(prices)s::numeric[], %(teas)s::text[]) s (sku, title, price, tea)
returning *
