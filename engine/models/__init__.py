"""Models: loading, the embedded ones, and the drafts trained for them."""
