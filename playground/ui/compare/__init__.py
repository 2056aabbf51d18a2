"""The Compare page: strategy cards, live columns, and the tabs below them."""
