-- Named readers of the log, and the queues of those that acknowledge records.

create table pipeline.consumers (
    id integer generated always as identity primary key,
    name text not null unique check (name ~ '^[A-Za-z0-9_.-]{1,63}$'),
    kind text not null check (kind in ('records', 'cursor')),
    tables text[] not null default '{}',
    actions text[] not null default '{}',
    state text not null default 'active' check (state in ('active', 'paused')),
    group_by text[],
    visibility interval not null default '30 seconds' check (visibility > interval '0'),
    max_deliveries integer check (max_deliveries >= 1),
    max_unacknowledged integer check (max_unacknowledged >= 1),
    position bigint not null,
    reader text,
    reader_session text,
    reader_since timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp()
);
comment on table pipeline.consumers is 'Named readers of the log. Change them only with the functions.';
comment on column pipeline.consumers.tables is 'Patterns schema.table in which * matches anything; empty: all.';
comment on column pipeline.consumers.group_by is 'Columns of record that make the group; null: each row is a group.';
comment on column pipeline.consumers.position is
    'cursor: the last seq acknowledged; records: the seq after which it began.';
comment on column pipeline.consumers.reader is 'cursor: the client that reads now.';

create table pipeline.consumer_progress (
    consumer_id integer primary key,
    folded_seq bigint not null
) with (fillfactor = 50);
comment on table pipeline.consumer_progress is
    'The seq up to which the log is in consumer_records. The shuffler skips rows that an administrative function locks.';

create table public.consumer_records (
    consumer_id integer not null,
    source_table_oid bigint not null,
    record_pk text collate "C" not null,
    unkeyed bigint not null default 0,
    seq bigint not null,
    queued_seq bigint not null,
    commit_lsn bigint,
    commit_idx integer,
    action text not null,
    record jsonb,
    event jsonb,
    group_id text not null default '',
    state text not null default 'available'
        check (state in ('available', 'delivered', 'pending_redelivery', 'dead')),
    ack_id uuid,
    visible_at timestamptz,
    deliveries integer not null default 0,
    delivered_seq bigint,
    delivered_group text,
    primary key (consumer_id, source_table_oid, record_pk, unkeyed)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
create index consumer_records_queue_idx on public.consumer_records (consumer_id, queued_seq)
    where state = 'available';
create index consumer_records_visible_idx on public.consumer_records (consumer_id, visible_at)
    where visible_at is not null;
create index consumer_records_ack_idx on public.consumer_records (ack_id) where ack_id is not null;
create index consumer_records_group_idx on public.consumer_records (consumer_id, group_id, queued_seq)
    where group_id <> '' and state <> 'dead';
create index consumer_records_delivered_group_idx on public.consumer_records (consumer_id, delivered_group)
    where delivered_group is not null;
create index consumer_records_truncates_idx on public.consumer_records (consumer_id, source_table_oid, seq)
    where action = 'truncate' and state <> 'dead';
create index consumer_records_dead_idx on public.consumer_records (consumer_id, seq) where state = 'dead';
comment on table public.consumer_records is
    'Items that a records consumer has not acknowledged: one per row of a table, its last change; refers to the log.';
comment on column public.consumer_records.unkeyed is 'seq if each event is a separate item, else 0.';
comment on column public.consumer_records.seq is 'The event that is its last change.';
comment on column public.consumer_records.queued_seq is 'Its place in the queue: the first change since its delivery.';
comment on column public.consumer_records.record is
    'Set only for a key that the row has left, because its record is not that of the event.';
comment on column public.consumer_records.event is 'The complete event of a dead letter, which may outlive the log.';
comment on column public.consumer_records.group_id is 'Empty when the consumer has no group_by.';
comment on column public.consumer_records.visible_at is
    'When a delivery expires, or the delay of a nack ends; null if the item waits for nothing.';
comment on column public.consumer_records.delivered_seq is 'The event that was last delivered.';
comment on column public.consumer_records.delivered_group is 'The group of the item when it was delivered.';

create table pipeline.consumer_touches (
    consumer_id integer not null,
    source_table_oid bigint not null,
    record_pk text collate "C" not null,
    unkeyed bigint not null default 0,
    seq bigint not null,
    queued_seq bigint not null,
    commit_lsn bigint,
    commit_idx integer,
    action text not null,
    record jsonb,
    group_id text,
    primary key (consumer_id, source_table_oid, record_pk, unkeyed, seq)
);
comment on table pipeline.consumer_touches is
    'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks'
    ' them again until it ends.';
