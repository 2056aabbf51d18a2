"""How the weights in ``models/`` were made: the model writes texts, and drafts learn from them."""
