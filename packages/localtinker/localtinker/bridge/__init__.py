"""A bridge for the SDK 0.38 to servers that were written for an older one: SkyRL 0.4.0 and TuFT.

`recognise` asks a server what it is and returns an `Engine`; `capabilities` names what an engine may lack.
`process.Bridge` runs the bridge as a child process; its server is `app.py`, what it translates `table.py`.
Importing this package loads neither the SDK nor torch.
"""

from localtinker.bridge.engines import Engine, recognise

__all__ = ["Engine", "recognise"]
