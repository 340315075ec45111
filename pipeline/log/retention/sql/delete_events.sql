-- Delete a small batch of the oldest events.
delete from {events} where seq >= %(first)s and seq <= %(upto)s
