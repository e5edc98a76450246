"""Python imports this at start-up if this directory is in its path."""

import witness

witness.install()
