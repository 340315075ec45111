-- The state of the cursors that this process has claimed; using the session also shows that it is not frozen.
select name, state, position, reader_session
from pipeline.consumers
where name = any (%(names)s::text[])
