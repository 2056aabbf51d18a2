"""The page, built with Gradio: `page.build` puts the pages of the packages below on it."""
