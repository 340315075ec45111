-- Three tables of a shop, for a first look at the server.
create table public.customers (
    id int primary key,
    name text not null,
    joined_at timestamptz not null default now()
);
create table public.products (
    id int primary key,
    title text not null,
    price numeric(10, 2) not null
);
create table public.orders (
    id int generated always as identity primary key,
    customer_id int not null references public.customers,
    product_id int not null references public.products,
    total numeric(10, 2) not null,
    paid boolean not null default false
);
-- Updates and deletes of orders then have the complete old row in the WAL, and events have the old values.
alter table public.orders replica identity full;
insert into public.customers values (1, 'Ada', '2026-01-05 09:30+00'), (2, 'Björn', '2026-02-11 16:45+00');
insert into public.products values (1, 'Sencha, 100 g', 8.90), (2, 'Teapot', 34.00);
insert into public.orders (customer_id, product_id, total) values (1, 1, 17.80), (2, 2, 34.00);
analyze public.customers, public.products, public.orders;
