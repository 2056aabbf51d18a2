"""The page: one file per concern, bound together by `page.build`.

The only part of the project, with ``app.py``, that knows Gradio.
"""
