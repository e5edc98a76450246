"""The foreground service `serve grader`, with the settings of a configuration."""

from __future__ import annotations

from pathlib import Path

from rtl_distill.cli.arguments import ConfigArgument, SetOption, SourceOption
from rtl_grader.cli.serve import (
    HostOption,
    OutputOption,
    PortOption,
    QueueOption,
    serve_queue,
    token_for,
)


def serve_grader(
    config: ConfigArgument = "demo",
    source: SourceOption = None,
    set_: SetOption = None,
    output: OutputOption = Path("runs/grader.jsonl"),
    host: HostOption = "127.0.0.1",
    port: PortOption = 0,
    queue: QueueOption = 2048,
) -> None:
    """Grade answers over HTTP with the `grading` settings of a configuration, until Ctrl-C or SIGTERM.

    Prints two environment variables for the client; if the second one, the token, is already set, its value
    is used. Each answer is graded once: a repeated request, even after a restart, returns the stored
    record. `/docs` describes the requests.

    Examples:

        rtl-distill serve grader --source starter --source rtllm=../RTLLM --port 8200

        rtl-distill serve grader cvdp --set grading.workers=dask://10.0.0.5:8786 --host 0.0.0.0 --port 8200
    """
    from contextlib import closing

    from rtl_core.config import load_config
    from rtl_core.run.check.machine import problems_of
    from rtl_distill.tasks.cluster import cluster_of
    from rtl_grader.http_server import listen
    from rtl_grader.problems.sources import override_of
    from rtl_grader.serving.grading_queue import open_queue

    token = token_for(host)
    settings = load_config(config, [*([override_of(source)] if source else []), *(set_ or [])])
    # First, so that a port in use is reported at once and early clients wait.
    with closing(listen(host, port)) as listener:
        problems = problems_of(settings).every
        with (
            cluster_of(settings) as cluster,
            open_queue(problems, settings.grading, cluster, output, queue) as grading,
        ):
            serve_queue(grading, listener, token)
