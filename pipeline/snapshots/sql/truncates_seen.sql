-- Store up to which seqs truncates of partitions were searched.
update pipeline.partition_looks set after_seqs = after_seqs || %(seqs)s where source_id = %(source)s and epoch = %(epoch)s
