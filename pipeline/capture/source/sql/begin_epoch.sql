-- Store a new epoch of a source; an existing record is kept.
insert into pipeline.epochs (source_id, epoch, system_identifier, timeline, from_lsn, previous_position, after_seq, reason,
    after_seqs)
values (%(source)s, %(epoch)s, %(system_identifier)s, %(timeline)s, %(from_lsn)s, %(previous_position)s, %(after_seq)s,
    %(reason)s, %(after_seqs)s)
on conflict do nothing
