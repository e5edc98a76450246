"""The nouns shared by all rooms. They import nothing else of this project."""
