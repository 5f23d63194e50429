"""REHEARSE, our own policy: try several policies, then follow the best.

For joining (:mod:`.join`) the policies are tried on streams drawn from the models before the run starts.
For caching (:mod:`.cache`) each policy runs a shadow cache beside the real one, and the real cache follows
the best so far.  :mod:`.shadow_caches` and :mod:`.lru_lfu_race` are the compiled caches;
:mod:`.cache_policy` defines the same in plain Python.
"""
