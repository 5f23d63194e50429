"""The engine for bounded queries over application time (paper 2).

Rows pass a reorder buffer (``reorder_buffer``), which releases them in the order of their timestamps.
``execute`` joins released rows with the partial matches that wait for them, and keeps the new partial matches
that can still be completed: counts of them, or Pareto fronts (``pareto_fronts``).  ``compile`` turns a plan
into the SQL that does this (``program``); ``state`` describes what is in the state store.
"""
