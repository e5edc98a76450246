"""An Inspect solver that answers from a file: `-S answers=FILE`, JSON {kind: {sample id: response}}. Epoch n uses the n-th kind."""

import json
from pathlib import Path

from inspect_ai.model import ModelOutput
from inspect_ai.solver import solver
from inspect_ai.util import sandbox


@solver
def replay(answers: str, into_sandbox: bool = False):
    kinds = list(json.loads(Path(answers).read_text()).values())

    async def solve(state, generate):
        text = kinds[state.epoch - 1][str(state.sample_id)]
        if into_sandbox:
            for path, content in (
                (file for part in json.loads(text)["code"] for file in part.items())
                if text
                else ()
            ):
                await sandbox().write_file(path, content)
        else:
            state.output = ModelOutput.from_content("replay", text)
        return state

    return solve
