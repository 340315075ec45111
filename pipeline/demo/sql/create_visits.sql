-- Visits of the shop's pages: a table that is emptied and altered while it is followed.
create table shop.visits (
    id bigint generated always as identity primary key,
    page text not null,
    at timestamptz not null default clock_timestamp()
);
insert into shop.visits (page) select '/tea/' || n from generate_series(1, 5000) n
