"""A Harbor agent that writes files into its container: kwargs `answers`, a JSON file {kind: {task: {path: text}}}, and `kind`."""

import json
import tempfile
from pathlib import Path

from harbor.agents.base import BaseAgent


class Replay(BaseAgent):
    def __init__(self, *arguments, answers: str, kind: str, **others):
        super().__init__(*arguments, **others)
        self._files = json.loads(Path(answers).read_text())[kind]

    @staticmethod
    def name() -> str:
        return "replay"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        return

    async def run(self, instruction, environment, context) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in self._files[environment.environment_name].items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text)
            await environment.upload_dir(folder, "/workspace")
