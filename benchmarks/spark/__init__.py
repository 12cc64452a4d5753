"""`enrich` on streams, against Spark's own stream-static join and stores behind `mapInArrow`."""
