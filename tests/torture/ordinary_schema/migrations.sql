-- What migrates the tables, as frameworks and tools write it. A block is a job, after it what no other job may have
-- meanwhile. A line is a transaction; at `...` others work for a while. {a|b}: one of these.

--- column: any
alter table {t} add extra_{n} {integer|text|uuid|varchar(20)|jsonb|timestamp(6)|numeric(8, 2)|app.label|citext}
...
alter table {t} rename extra_{n} to extra_{n}_b
...
alter table {t} drop extra_{n}_b; {alter table {t} add extra_{n} text; alter table {t} drop extra_{n}|}

--- column_with_a_default: any
alter table {t} add given_{n} {integer not null default 7|text default 'none'|boolean not null default false}
...
alter table {t} alter given_{n} drop default
...
{alter table {t} drop given_{n}|}

--- not_null_in_steps: any
alter table {t} add needed_{n} text
...
alter table {t} add constraint needed_{n}_given check (needed_{n} is not null) not valid
alter table {t} alter needed_{n} set default 'later'
update {t} set needed_{n} = 'filled' where ctid = any(array(select ctid from {t} limit 40))
...
update {t} set needed_{n} = 'filled' where needed_{n} is null
alter table {t} validate constraint needed_{n}_given
alter table {t} alter needed_{n} set not null; alter table {t} drop constraint needed_{n}_given
...
alter table {t} drop needed_{n}

--- not_null_not_valid: any, 18
alter table {t} add needed_{n} text
...
alter table {t} add constraint needed_{n}_given not null needed_{n} not valid
...
update {t} set needed_{n} = 'filled' where needed_{n} is null
alter table {t} validate constraint needed_{n}_given
...
alter table {t} drop needed_{n}

--- checks: any
alter table {t} add check_{n} integer
...
alter table {t} add constraint check_{n} check (check_{n} < 8000 and app.is_slug(check_{n}::text)) not valid
...
{delete from {t} where check_{n} >= 8000; alter table {t} validate constraint check_{n}|}
...
alter table {t} drop check_{n}

--- other_type: any
alter table {t} add typed_{n} varchar(40)
...
alter table {t} alter typed_{n} type {varchar(80)|text}
...
alter table {t} alter typed_{n} type integer using length(typed_{n})
...
alter table {t} drop typed_{n}

--- label: public.shop_order, public.comments
alter type order_status add value 'label {n}'{| before 'paid'| after 'new'}
insert into shop_order (status, history, total, quantity) values ('label {n}', array['label {n}', 'paid']::order_status[], 1, 1)
...
alter type order_status rename value 'label {n}' to 'renamed {n}'
update shop_order set status = status, history = history, offer_until = null where status = 'renamed {n}' or 'renamed {n}' = any(history)
update comments set status = status where status = 'renamed {n}'

--- enum_replaced: public."User", public."Setting"
update "User" set role = 'USER', roles = null where role not in ('USER', 'ADMIN') or roles is not null; \
update "Setting" set role = null where role not in ('USER', 'ADMIN'); \
create type "Role_new" as enum ('USER', {|'NEW {n}', }'ADMIN', 'ROLE {n}'); \
alter table "User" alter role drop default; \
alter table "User" alter role type "Role_new" using (role::text::"Role_new"); \
alter table "User" alter roles type "Role_new"[] using (roles::text::"Role_new"[]); \
alter table "Setting" alter role type "Role_new" using (role::text::"Role_new"); \
alter type "Role" rename to "Role_old"; alter type "Role_new" rename to "Role"; drop type "Role_old"; \
alter table "User" alter role set default 'USER'
insert into "Setting" (id, role) values ('new {n}', 'ROLE {n}')

--- wider_key: public.counters
drop function if exists app.copy_id() cascade; \
alter table counters drop if exists new_id, drop if exists old_id, add new_id bigint; \
create function app.copy_id() returns trigger language plpgsql as 'begin new.new_id := new.id; return new; end'; \
create trigger copy_id before insert or update on counters for each row execute function app.copy_id()
...
update counters set new_id = id where ctid = any(array(select ctid from counters limit 50))
...
update counters set new_id = id where new_id is null
create unique index concurrently counters_new_key on counters (new_id)
drop function app.copy_id() cascade; alter table counters alter new_id set not null; \
alter table counters drop constraint counters_pkey; \
alter table counters rename id to old_id; alter table counters rename new_id to id; \
alter table counters add constraint counters_pkey primary key using index counters_new_key; \
alter table counters alter id set default nextval('counters_id_seq'); \
alter sequence counters_id_seq owned by counters.id; \
alter table counters alter old_id drop default, alter old_id drop not null
...
alter table counters drop old_id
...
alter table counters alter id type integer
...
alter table counters alter id type bigint

--- new_table
{create type app.mood_{n} as enum ('sad', 'ok'); create table app.made_{n} (id uuid primary key, mood app.mood_{n} not null)|\
create table app.made_{n} (id serial primary key, status order_status)|\
create function app.strip_{n}(text) returns text language plpgsql immutable as $$ begin return fold(trim($1)); end $$; \
create table app.made_{n} (id uuid primary key, note text, stripped text generated always as (app.strip_{n}(note)) stored)|\
create table app.made_{n} (id bigserial primary key, slug text check (app.is_slug(slug)), parent_id bigint references app.made_{n})|\
create table app.made_{n} (id uuid primary key, at timestamptz default now() check (at > now() - interval '5 seconds'))}
...
...
alter table app.made_{n} add name text; create index on app.made_{n} (app.slug(name)) where name is not null
{|alter table app.made_{n} rename to moved_{n}; alter table app.moved_{n} set schema public}
...
drop table if exists app.made_{n}, public.moved_{n}

--- passing_table
create table passing_{n} (id serial primary key, n integer); insert into passing_{n} (n) select generate_series(1, 5)
{|alter table passing_{n} rename to passed_{n}}
drop table if exists passing_{n}, passed_{n}

--- indexes: any
create index concurrently index_{n} on {t} ({columns})
...
drop index concurrently if exists {s}.index_{n}

--- renamed: any
alter table {t} rename to renamed_{n}; create view {t} as select * from {s}.renamed_{n}
...
drop view {t}; alter table {s}.renamed_{n} rename to "{short}"

--- made_again: public."FeatureFlag"
drop table if exists "FeatureFlag"; \
{create table "FeatureFlag" (id uuid primary key default gen_random_uuid(), name citext, ratio {double precision|text|integer})|}
...
create table if not exists "FeatureFlag" (id uuid primary key default gen_random_uuid(), share integer, name text)

--- schemas_exchanged: blue.pages, green.pages
alter schema blue rename to aside; alter schema green rename to blue; alter schema aside rename to green
...
alter table blue.pages add more_{n} text
...
alter table blue.pages drop more_{n}

--- types: public.accounts
alter type app.address add attribute zip_{n} text
update accounts set name = name
...
alter domain app.label drop constraint short
insert into accounts (name) values (repeat('long {n} ', 20))
...
alter type app.address drop attribute zip_{n}
alter domain app.label add constraint short check (length(value) <= 60) not valid

--- exchanged_by_name: shadowable
create table {s}."_gho{n}_{short}" (like {t} including all); create table {s}._ghc{n} (id bigserial primary key, key text); \
create function app.log_{n}() returns trigger language plpgsql as $$ declare x {t}%rowtype; begin \
if tg_op <> 'INSERT' then x := old; insert into {s}._ghc{n} (key) values (({key})::text); end if; \
if tg_op <> 'DELETE' then x := new; insert into {s}._ghc{n} (key) values (({key})::text); end if; return null; end $$; \
create trigger log_{n} after insert or update or delete on {t} for each row execute function app.log_{n}()
{|alter table {s}."_gho{n}_{short}" add ghost_{n} integer default {n}}
insert into {s}."_gho{n}_{short}" ({columns}) select {columns} from {t}
...
lock table {t} in access exclusive mode; \
delete from {s}."_gho{n}_{short}" x where ({key})::text in (select key from {s}._ghc{n}); \
insert into {s}."_gho{n}_{short}" ({columns}) select {columns} from {t} x where ({key})::text in (select key from {s}._ghc{n}); \
drop function app.log_{n}() cascade; \
alter table {t} rename to _del{n}; alter table {s}."_gho{n}_{short}" rename to "{short}"
{...|}
drop table {s}._del{n}; drop table {s}._ghc{n}

--- dbt_daily: reports.daily
drop table if exists reports.daily__dbt_tmp; create table reports.daily__dbt_tmp as \
select updated_at::date as day, count(*) as posts, {n} as run from posts group by 1
{...|}
alter table reports.daily rename to daily__dbt_backup; alter table reports.daily__dbt_tmp rename to daily
drop table if exists reports.daily__dbt_backup cascade

--- dbt_by_status: reports.by_status
create table reports.by_status__dbt_tmp as select status, count(*) as orders, 'run {n}' as run from shop_order group by status
alter table reports.by_status rename to by_status__dbt_backup; alter table reports.by_status__dbt_tmp rename to by_status
drop table if exists reports.by_status__dbt_backup cascade
