"""The Watermark page: detect, attack, calibrate and explain watermarks."""
