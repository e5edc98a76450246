"""Say what the simulators on PATH are too old for, and how to get newer ones: `python -m scripts.older_tools`.

Prints one line, or nothing if they are new enough or a toolchain is installed. Installs nothing.
"""

from __future__ import annotations

from rtl_grader.grading.executors.probe import simulators
from rtl_grader.grading.executors.toolchain import shortcomings, tools_home


def main() -> None:
    """Print the line."""
    if (tools_home() / "root").is_dir():
        return
    if old := shortcomings(simulators()):
        how = "installs newer tools beside them (from Docker, or as root by debootstrap; some minutes)"
        print(
            f"note: {'; '.join(old.values())}: `.venv/bin/rtl-distill admin toolchain install` {how}"
        )


if __name__ == "__main__":
    main()
