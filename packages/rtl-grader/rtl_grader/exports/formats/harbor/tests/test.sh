#!/bin/sh
exec python3 /tests/ask.py
