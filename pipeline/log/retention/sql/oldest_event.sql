-- The first event from a seq on and when it arrived. Below that there may be many that are deleted and not yet vacuumed.
select seq, inserted_at as at from {events} where seq >= %(since)s order by seq limit 1
