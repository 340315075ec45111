            (select k.epoch, k.commit_lsn, k.commit_idx, k.record, k.exact, place.lsn, place.idx, true
            from pipeline.known_rows k
            where k.source_id = %(source)s and k.table_oid = place.oid and k.epoch = %(epoch)s and k.record_pk = w.known_pk)
