"""The embedded Tinker service: the wire protocol of Tinker's cloud on this machine's CPU or GPU, for SDK 0.38.

`LocalTinker` (process.py) starts it as a child process; `rtl-distill serve-tinker` runs it in the foreground.
"""
