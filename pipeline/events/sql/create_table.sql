-- An events table beside the default one: the same columns and indexes, its own seq.
create sequence {sequence};
create table {table} (like {default} including all) partition by range (seq);
alter table {table} alter column seq set default nextval({sequence_name}::regclass);
alter sequence {sequence} owned by {column};
