"""A lake's tables are Iceberg tables too: PyIceberg's own two tables, and which of its commits there were."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
additive = True

ICEBERG = """
create table pipeline.iceberg_tables (
    catalog_name varchar(255) not null,
    table_namespace varchar(255) not null,
    table_name varchar(255) not null,
    metadata_location varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type varchar(5),
    primary key (catalog_name, table_namespace, table_name)
);
comment on table pipeline.iceberg_tables is
    'The catalog as PyIceberg and Spark read it: where the metadata of each Iceberg table is.';

create table pipeline.iceberg_namespace_properties (
    catalog_name varchar(255) not null,
    namespace varchar(255) not null,
    property_key varchar(255) not null,
    property_value varchar(1000) not null,
    primary key (catalog_name, namespace, property_key)
);
comment on table pipeline.iceberg_namespace_properties is 'The namespaces of the catalogs in pipeline.iceberg_tables.';

create table pipeline.export_iceberg (
    lake_id uuid primary key,
    catalog text not null,
    uri text not null,
    location text not null,
    number bigint not null default 0,
    upto_seq bigint not null default 0,
    kept_seq bigint not null default 0,
    committed_at timestamptz
);
comment on table pipeline.export_iceberg is
    'Lakes with Iceberg tables, and the seq up to which all of these have the changes; stored in the transaction'
    ' that sets their metadata.';
comment on column pipeline.export_iceberg.number is 'The number of the last commit.';
comment on column pipeline.export_iceberg.uri is
    'The address of another catalog; empty: the catalog is pipeline.iceberg_tables.';
comment on column pipeline.export_iceberg.location is
    'Where the lake was when this was stored: the metadata has absolute paths.';
comment on column pipeline.export_iceberg.kept_seq is 'The last seq of the oldest commit that readers may still read.';

create table pipeline.export_iceberg_commits (
    lake_id uuid not null,
    number bigint not null,
    upto_seq bigint not null,
    committed_at timestamptz not null default now(),
    primary key (lake_id, number)
);
comment on table pipeline.export_iceberg_commits is 'Commits of all Iceberg tables that readers may still read.';

create table pipeline.export_iceberg_tables (
    lake_id uuid not null,
    namespace text not null,
    name text not null,
    dataset text not null,
    version integer,
    table_id bigint,
    state_id bigint,
    oldest bigint not null,
    newest bigint not null,
    primary key (lake_id, namespace, name)
);
comment on table pipeline.export_iceberg_tables is
    'Iceberg tables: changes of a dataset and schema version, or the current state of a table.';
comment on column pipeline.export_iceberg_tables.state_id is 'The version of the state whose files the table has.';
comment on column pipeline.export_iceberg_tables.oldest is
    'The number of the oldest commit of which the table has a snapshot.';

create table pipeline.export_iceberg_written (
    lake_id uuid not null,
    path text not null,
    primary key (lake_id, path)
);
comment on table pipeline.export_iceberg_written is
    'Metadata files of a commit that is being made; if it fails, the next run removes them.';
"""
DROPPED = """
drop table pipeline.export_iceberg_written, pipeline.export_iceberg_tables, pipeline.export_iceberg_commits,
    pipeline.export_iceberg, pipeline.iceberg_namespace_properties, pipeline.iceberg_tables;
"""


def upgrade() -> None:
    """Empty tables: the first commit lists all files that a lake has."""
    op.execute(ICEBERG)


def downgrade() -> None:
    """Iceberg tables are forgotten, their files are not."""
    op.execute(DROPPED)
