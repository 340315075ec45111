-- Existing customers: the first of them are the regulars.
insert into shop.customers (name, email, born, newsletter, preferences, joined_at)
select 'Customer ' || n || case n %% 5 when 0 then ' "Ångström"' when 1 then ' 李' else '' end,
    case when n %% 3 > 0 then n || '@example.org' end, case when n %% 4 > 0 then date '1940-02-29' + n %% 24000 end,
    n %% 2 = 0, case n %% 4 when 0 then jsonb_build_object('tea', 'Assam', 'sugar', n %% 4) when 1 then '[]' end,
    timestamptz '2020-01-01 00:00:00+00' + n * interval '1 hour 1.000001 second'
from generate_series(1, %(rows)s) n
returning *
