"""The speculative lab without a page: who drafts, what it costs, and that nothing is changed."""
