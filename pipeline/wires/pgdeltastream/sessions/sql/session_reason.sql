-- The reason why a session has ended; no row if it has not.
select coalesce(reason, 'it has ended')
from pipeline.sessions
where id = %(id)s and state = 'ended'
