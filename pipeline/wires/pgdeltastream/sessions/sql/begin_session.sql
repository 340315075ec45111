-- Add a session whose slot is about to be created; no row if another session that has not ended has its name.
insert into pipeline.sessions (slot, wire, source_id, epoch, system_identifier, made_after, address)
values (%(slot)s, %(wire)s, %(source_id)s, %(epoch)s, %(system_identifier)s, %(made_after)s, %(address)s)
on conflict (slot) where state <> 'ended' do nothing
returning id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
