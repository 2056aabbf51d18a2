"""Language models: loading, the embedded ones, and the draft weights trained for them."""
