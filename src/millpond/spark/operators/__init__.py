"""What runs in Spark's Python workers: mappers over Arrow batches, and processors that hold the state.

A mapper reads the rows of one task and sends one payload to each shard.  A shard's processor merges the
payloads of a micro-batch into its state, and emits the rows that the batch adds to the answer.
"""
