"""Python loads this by itself when it starts with this directory in its path."""

import witness

witness.install()
