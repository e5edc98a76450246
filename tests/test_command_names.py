"""The names of the commands: few at the first level, their examples, former names, and suggestions for mistyped ones."""

import functools
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import BadOptionUsage, MissingParameter, NoArgsIsHelpError

from localtinker.cli import app as localtinker
from rtl_distill import cli
from rtl_grader import cli as rtl_grader
from scripts import messages
from tests.command import run

REPOSITORY = Path(__file__).parents[1]
PAGES = [
    *REPOSITORY.glob("*.md"),
    *REPOSITORY.glob("docs/*.md"),
    *REPOSITORY.glob("packages/*/README.md"),
]
COMMAND = re.compile(
    r"""(?:^|[\s`(/])(rtl-distill|rtl-grader|localtinker)\ (?!COMMAND)
    ((?:"[^"]*"|'[^']*'|\$\([^)]*\)|[^\s"'`|;<>&#]|[ ](?!\s*\#))+)""",
    re.X,
)


def commands_of(text: str) -> Iterator[tuple[str, str, bool]]:
    """(program, arguments, whether it is a line of a block) of each command line in a page."""
    for number, part in enumerate(re.split(r"^```.*$", text, flags=re.M)):
        if number % 2:
            lines = part.replace("\\\n", " ")
            yield from ((*match.groups(), True) for match in COMMAND.finditer(lines))
        else:
            for span in re.findall(r"`([^`]+)`", part):
                yield from ((*match.groups(), False) for match in COMMAND.finditer(span))


@functools.cache
def parser(program: str) -> typer.core.TyperGroup:
    apps = {"rtl-distill": cli.app, "rtl-grader": rtl_grader.app, "localtinker": localtinker}
    cli.register()
    rtl_grader.register()
    return typer.main.get_command(apps[program])


def parse(program: str, arguments: str) -> None:
    """Parse a command line without running it. Raises the error that its user would see."""
    arguments = re.sub(r'"\$\{@[^}]*\}"', "", arguments)  # the arguments of a script
    words = shlex.split(re.sub(r"\$\([^)]*\)", "x", arguments))
    command = parser(program)
    context = command.make_context(program, words)
    while isinstance(command, typer.core.TyperGroup):
        words = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, words)
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_page_is_understood(page):
    wrong = []
    for program, arguments, in_block in commands_of(page.read_text(encoding="utf-8")):
        try:
            parse(program, arguments)
        except (NoArgsIsHelpError, typer.Exit):
            continue
        except (MissingParameter, BadOptionUsage) as error:
            if in_block:  # elsewhere a command or an option is only named
                wrong.append(f"{program} {arguments}: {error.format_message()}")
        except Exception as error:
            wrong.append(f"{program} {arguments}: {error}")
    assert not wrong


def test_every_command_has_an_example_that_is_understood():
    cli.register()
    infos = [*cli.app.registered_commands]
    for group in cli.app.registered_groups:
        infos += group.typer_instance.registered_commands
    assert len(infos) > 35
    for info in infos:
        lines = re.sub(r"\\\n\s*", "", info.help)
        matches = COMMAND.findall("\n".join(re.findall("^    .*", lines, re.M)))
        assert matches, info.name
        for match in matches:
            parse(*match)


def test_the_first_level_has_the_commands_for_runs_and_five_groups():
    cli.register()
    commands = {info.name for info in cli.app.registered_commands}
    groups = {info.name for info in cli.app.registered_groups}
    assert commands - {"deploy"} == set(" ".join(cli.PANELS.values()).split())
    assert groups | {"deploy"} == {"problems", "grade", "serve", "deploy", "admin"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("regrade demo", "grade again demo"),
        (
            "grade p.jsonl --answers a --output o",
            "grade answers p.jsonl --answers a --output o",
        ),
        (
            "grade --answers=a p.jsonl --output o",
            "grade answers --answers=a p.jsonl --output o",
        ),
        ("debug r/1 --waves w.vcd", "show --debug r/1 --waves w.vcd"),
        ("serve-tinker --model m", "serve tinker --model m"),
        ("config --show demo", "check --show --show demo"),
        ("estimate cvdp", "check --estimate cvdp"),
        ("grade answers p.jsonl --answers a --output o", None),
        ("grade --help", None),
        ("train demo", None),
        ("", None),
    ],
)
def test_a_former_name_works_and_one_line_names_the_new_one(old, new, capsys):
    words = cli.in_new_words(old.split())
    assert words == (new or old).split()
    note = capsys.readouterr().err
    assert note.count("\n") == (new is not None)
    if new is not None:
        parse("rtl-distill", " ".join(words))


def test_every_former_name_leads_to_a_command(capsys):
    cli.register()
    for words in cli.RENAMED.values():
        first, *rest = words.split()
        command = parser("rtl-distill").commands[first]
        if rest and not rest[0].startswith("-"):
            command = command.commands[rest[0]]
        assert command.callback is not None or inspect.isclass(command), words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "did you mean train?"),
        (["validat"], "did you mean problems validate?"),
        (["agian"], "did you mean grade again?"),
        (["xyzzy"], "--help"),
        (["problems", "lst"], "Did you mean 'list'?"),
        (["train", "--accept-change"], "--accept-changes"),
        (["train", "dmo"], "did you mean demo?"),
        (["check", "--set", "learning.kl_wieght=1"], "did you mean learning.kl_weight"),
        (["problems", "list", "--source", "rtlm=."], "did you mean rtllm"),
        (["problems", "fetch", "cvdq"], "did you mean cvdp?"),
        (["evaluate", "--model", "m", "--problems", "p", "--protocol", "cvpd"], "cvdp?"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(words, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rtl-distill", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_version_is_printed_and_a_former_name_runs():
    assert run("--version").stdout.startswith("rtl-distill 0.")
    done = run("toolchain", "--help")
    assert done.stderr == "note: `rtl-distill toolchain` is now `rtl-distill admin toolchain`\n"
    assert "rtl-distill admin toolchain install" in done.stdout


def test_the_page_of_messages_has_remedies_that_are_written_apart_from_their_error(monkeypatch):
    """A name, a constant of a module, a choice, an entry of a list or of a table, a row of a TOML file."""
    monkeypatch.setattr(messages, "SHORT", 12)
    told = {message for message, _ in messages.rows()}
    assert told >= {
        "…; the budget of $… stops it …",
        "Prefect's server at … fails: …",
        "…: the price list of … has no price for …",
        "… thinks before it answers, and answers limited to sampling.max_tokens = … often end within their thoughts",
        "the Tinker service does not accept the key (401): …",
        "the teacher would be saved weights, but …",
    }


def test_the_page_of_messages_is_current(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["messages", "--check"])
    with pytest.raises(SystemExit) as ended:
        messages.main()
    assert not ended.value.code


@pytest.mark.slow
def test_the_readmes_example_of_grading_runs_from_a_clone(tmp_path):
    (line,) = [
        arguments
        for _, arguments, _ in commands_of((REPOSITORY / "README.md").read_text())
        if arguments.startswith("grade answers examples")
    ]
    words = line.replace("verdicts.jsonl", str(tmp_path / "verdicts.jsonl")).split()
    done = run(*words, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    for outcome in ("passed", "tests_failed", "interface_mismatch"):
        assert outcome in done.stdout


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("", "rtl-grader toolchain install"),
        ("import rtl_core; ", "rtl-distill admin toolchain install"),
    ],
)
def test_a_message_names_the_command_of_the_program_that_runs(first, told):
    code = f"{first}from rtl_grader.words import command; print(command('toolchain install'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == told
