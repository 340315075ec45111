-- Move a cursor's position, as the reader that this process claimed it for.
select pipeline.advance(%(name)s, %(seq)s, %(session)s)
