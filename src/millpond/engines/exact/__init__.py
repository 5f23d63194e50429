"""The engine for bounded queries without conditions on application time (paper 1).

Of each stream a synopsis of bounded size is kept, and the answer on the synopses is the answer on the
streams.  ``compile`` turns a plan into slots, the tables of a synopsis (``slots``), and into the SQL that
fills them (``slot_sql``) and answers from them (``answer_sql``).  Workers execute the result (``program``,
``execute``) on synopses (``synopsis``).  ``state`` describes what is in the state store.
"""
