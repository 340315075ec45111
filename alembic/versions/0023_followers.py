"""Followers: databases that are kept equal to the source from the log, and how far each is."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
additive = True

FOLLOWERS = """
create table pipeline.followers (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources (id),
    name text not null unique,
    dsn text not null,
    tables text[] not null default '{}',
    copy text not null default 'source' check (copy in ('source', 'log', 'none')),
    schema_mode text not null default 'create' check (schema_mode in ('create', 'exists')),
    ddl text not null default 'follow' check (ddl in ('follow', 'stop')),
    on_rewrite text not null default 'copy' check (on_rewrite in ('copy', 'stop')),
    truncates boolean not null default false,
    system_identifier text not null,
    database_oid oid not null,
    database_name text not null,
    wanted text not null default 'running' check (wanted in ('running', 'paused')),
    made_at timestamptz not null default now(),
    made_seq bigint not null,
    seq bigint not null,
    commit_lsn bigint,
    committed_at timestamptz,
    state text not null default 'waiting' check (state in ('copying', 'following', 'waiting', 'paused', 'stopped')),
    reason text,
    remedy text,
    reported_at timestamptz
);
create unique index followers_password_idx on pipeline.followers
    (upper(regexp_replace(name, '[^A-Za-z0-9]', '_', 'g')));
comment on table pipeline.followers is
    'Databases that the server keeps equal to the source by applying the log, and how far each is.';
comment on column pipeline.followers.dsn is 'Its connection string, without any password.';
comment on column pipeline.followers.tables is 'Patterns of its tables; empty: all that are captured.';
comment on column pipeline.followers.copy is
    'The origin of its first rows. source: copied from the source. log: written from the first event of the log on.'
    ' none: it has them already.';
comment on column pipeline.followers.truncates is 'True if tables with rows are emptied before they are copied.';
comment on column pipeline.followers.system_identifier is 'The system identifier of its cluster when it was added.';
comment on column pipeline.followers.wanted is 'What a user asked for; state is what its applier does.';
comment on column pipeline.followers.made_seq is 'The newest seq when it was added.';
comment on column pipeline.followers.seq is
    'The seq up to which the log is applied, as its applier last reported. The follower needs every later event.';
comment on column pipeline.followers.reason is 'Why it is in this state.';
comment on column pipeline.followers.remedy is 'What a user can do about the reason.';
comment on index pipeline.followers_password_idx is 'No two followers may have the same password variable.';

create table pipeline.follower_tables (
    follower_id bigint not null references pipeline.followers (id) on delete cascade,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    state text not null default 'waiting'
        check (state in ('waiting', 'copying', 'following', 'stopped', 'different')),
    reason text,
    remedy text,
    primary key (follower_id, table_oid)
);
comment on table pipeline.follower_tables is 'The tables of each follower, with their states and the reasons.';
comment on column pipeline.follower_tables.table_oid is 'The table at the source; for partitions, their root.';
"""


def upgrade() -> None:
    """Add the tables."""
    op.execute(FOLLOWERS)


def downgrade() -> None:
    """Forget the followers; their databases stay as they are, each with its position."""
    op.execute(
        "drop view if exists pipeline.readers; delete from pipeline.installed_functions;"
        " drop table pipeline.follower_tables, pipeline.followers"
    )
