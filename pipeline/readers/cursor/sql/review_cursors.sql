-- How the cursors are that this process has claimed; using the session shows that the process is not frozen.
select name, state, position, reader_session
from pipeline.consumers
where name = any (%(names)s::text[])
