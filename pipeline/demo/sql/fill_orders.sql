-- Existing orders, all of them shipped.
insert into shop.orders (customer_id, state, total, note, placed_at, shipped_at)
select 1 + n %% %(customers)s, 'shipped', n %% 500 + 0.90, case n %% 7 when 0 then 'Ring twice' end,
    timestamptz '2023-01-01 00:00:00+00' + n * interval '5 minutes', timestamptz '2023-01-02 00:00:00+00' + n * interval '5 minutes'
from generate_series(1, %(rows)s) n
returning *
