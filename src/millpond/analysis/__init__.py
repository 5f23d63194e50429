"""Can it be bounded?  The criteria, their certificates, and the words for them."""
