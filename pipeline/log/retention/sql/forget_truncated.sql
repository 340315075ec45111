-- Forget rows that were known before their table was truncated, and rows of earlier epochs.
delete from pipeline.known_rows k
where k.source_id = %(source)s and (k.epoch < %(epoch)s or k.table_oid = %(oid)s
    and (k.commit_lsn, k.commit_idx) < (
        select e.commit_lsn, e.commit_idx from {part} e
        where e.source_database_id = %(source)s and e.source_table_oid = %(oid)s and e.record_pk = ''
            and e.action = 'truncate' and e.seq <= %(upto)s and e.source_epoch = %(epoch)s
        order by e.seq desc limit 1))
