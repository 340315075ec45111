-- One more event that went out without some of its values.
insert into pipeline.wire_counters as c (wire, name, count) values ('walstream', 'shortened', 1)
on conflict (wire, name) do update set count = c.count + 1
