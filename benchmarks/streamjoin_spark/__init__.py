"""`adjoin.join` and `adjoin.join_all` on streams, against Spark's own stream-stream joins and Flink's."""
