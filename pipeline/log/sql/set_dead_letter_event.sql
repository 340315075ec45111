-- Which event stands in a dead letter's place.
update pipeline.dead_letters set events_table = %(table)s, seq = %(seq)s where id = %(id)s
