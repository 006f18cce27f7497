"""What a run was, for people: a page of its own, and what differs between two runs."""
