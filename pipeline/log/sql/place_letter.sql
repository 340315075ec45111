-- Where the event is that holds a letter's place.
update pipeline.dead_letters set events_table = %(table)s, seq = %(seq)s where id = %(id)s
