-- What a consumer reads, and from where.
select kind, state, position, tables, actions from pipeline.consumers where name = %(name)s::text
