-- The events since content_state was read; `part`: by the upper bounds of the parts.
create temporary table content_changes (
    source smallint, seq bigint, source_epoch integer, commit_lsn bigint, commit_idx integer, record_pk text collate "C",
    given_up boolean, xid bigint, live boolean, checksum bigint, part integer, like content_keys
)
