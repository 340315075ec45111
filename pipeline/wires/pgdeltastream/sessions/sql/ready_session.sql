-- Mark a session as ready: its slot exists, and begins at this position. No row if the session has ended.
update pipeline.sessions
set state = 'ready', position = %(position)s, used_at = now()
where id = %(id)s and state = 'making'
returning id, slot, wire, source_id, epoch, system_identifier, state, made_after, position, created_at, used_at, reader,
    reader_since, reason, ended_at, dropped_at, address, used_for
