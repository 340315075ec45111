-- Which processes serve.

create table pipeline.roles (
    role text primary key,
    server text not null,
    pid integer not null,
    state text not null,
    reason text,
    since timestamptz not null default now()
);
comment on table pipeline.roles is 'The process that holds each role of serve, and its state.';
