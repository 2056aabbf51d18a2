"""What all pages share: controls, figures, background jobs, theme and model loading."""
