"""The watermark lab: calibration, attacks and the effect of green lists."""
