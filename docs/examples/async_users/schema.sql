-- The table of the example, at the source; followers get it by themselves.
create table if not exists users (
    id bigint generated always as identity primary key,
    name text not null,
    email text not null,
    made_at timestamptz not null default clock_timestamp()
);
