"""The watermark lab without a page: human-written texts, attacks, and what a detector is worth."""
