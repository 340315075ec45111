-- Move a cursor's position, on behalf of the reader that claimed it.
select pipeline.advance(%(name)s, %(seq)s, %(session)s)
