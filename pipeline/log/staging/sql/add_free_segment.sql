-- Add a segment that nobody fills yet; its table is created next.
insert into pipeline.segments (state) values ('free') returning id
