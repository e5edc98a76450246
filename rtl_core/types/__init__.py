"""The nouns that all rooms share. They import nothing else of this project, so that every room may import them."""
