-- The shop, new and empty: that of an earlier demo is dropped.
drop schema if exists shop cascade;
create schema shop authorization shop;
set role shop;
create table shop.customers (
    id bigint generated always as identity primary key,
    name text not null,
    email text,
    born date,
    newsletter boolean not null default false,
    preferences jsonb,
    joined_at timestamptz not null default clock_timestamp(),
    version integer not null default 1
);
create table shop.stock (
    sku text primary key,
    title text not null,
    price numeric(10,2) not null,
    on_hand integer not null check (on_hand >= 0),
    tags text[] not null default '{}',
    discontinued boolean not null default false,
    counted_at timestamptz,
    version integer not null default 1
);
create table shop.orders (
    id bigint generated always as identity primary key,
    customer_id bigint not null references shop.customers,
    state text not null default 'placed',
    total numeric(12,2),
    note text,
    placed_at timestamptz not null default clock_timestamp(),
    shipped_at timestamptz,
    version integer not null default 1
);
create index orders_placed_idx on shop.orders (id) where state = 'placed';
create table shop.order_lines (
    order_id bigint not null references shop.orders,
    line_no integer not null,
    sku text not null references shop.stock,
    quantity integer not null,
    unit_price numeric(10,2) not null,
    gift boolean,
    attributes jsonb,
    version integer not null default 1,
    primary key (order_id, line_no)
);
-- Updates and deletes of stock then have the complete old row in the WAL, and events have its old values.
alter table shop.stock replica identity full;
