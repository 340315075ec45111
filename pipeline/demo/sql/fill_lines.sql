-- Two lines for each existing order.
insert into shop.order_lines (order_id, line_no, sku, quantity, unit_price, gift, attributes)
select o.id, line, (%(skus)s::text[])[1 + (o.id * 2 + line) %% cardinality(%(skus)s::text[])], line, 4.90,
    case o.id %% 3 when 0 then true when 1 then false end, case when o.id %% 9 = 0 then '{"wrap": "red"}'::jsonb end
from shop.orders o, generate_series(1, 2) line
returning *
