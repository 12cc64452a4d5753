"""`enrich` on streams, against Spark's own stream-static join and against stores behind `mapInArrow`."""
