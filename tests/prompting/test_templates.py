"""Prompt templates: what each adds, that none reveals more than the specification, and that `cvdp` is the public runner's, byte for byte."""

from inspect import getdoc

import pytest

from rtl_core.config import load_config
from rtl_core.config.models import PromptingSection
from rtl_core.errors import ConfigError
from rtl_grader.prompts import SYSTEM, TEMPLATES, build_messages
from rtl_grader.prompts.shipped import EXAMPLE, interface_table
from rtl_grader.types.problem import Interface, InterfaceSource, Parameter, Port, Problem
from tests.nouns import a_problem


def problem(prompt: str, **changes) -> Problem:
    facts = (("clk_i", "input", 1), ("load", "input", 12), ("hidden_q", "output", 12))
    ports = tuple(
        Port(name=name, direction=direction, width=width) for name, direction, width in facts
    )
    depth = Parameter(name="DEPTH", default=4)
    interface = Interface(
        module="box", ports=ports, parameters=(depth,), source=InterfaceSource.GOLDEN
    )
    return a_problem(
        **{"prompt": prompt, "targets": ("rtl/box.sv",), "interface": interface, **changes}
    )


def test_the_configuration_accepts_and_explains_every_template_and_no_other():
    assert PromptingSection().template == "exact"
    assert set(TEMPLATES.entries) >= {"bare", "exact", "table", "examples", "full"}
    for name, template in TEMPLATES.entries.items():
        assert PromptingSection(template=name).template == name
        assert getdoc(template) in PromptingSection.model_fields["template"].description
    with pytest.raises(
        ValueError,
        match="no template 'exakt'; did you mean exact",
    ):
        PromptingSection(template="exakt")
    with pytest.raises(ValueError, match="two templates named 'exact'"):
        TEMPLATES.register("exact")(abs)


def test_a_template_of_the_users_own_is_named_by_its_import_path():
    config = load_config("demo", ["prompting.template=own_template:terse"], environment={})
    asked = problem("Module box.", context={"rtl/x.v": "wire a;"})
    (user,) = build_messages(asked, config.prompting.template)
    assert user["content"].startswith("Module box.\n\nFile `rtl/x.v`:")
    assert user["content"].endswith(build_messages(asked, "exact")[1]["content"][-40:])
    said = r"own_template:curt.*: `prompting.template`: `curt` in own_template is no template"
    with pytest.raises(ConfigError, match=said):
        load_config("demo", ["prompting.template=own_template:curt"], environment={})


def test_the_table_lists_only_what_the_text_contains():
    table = interface_table(problem("Module box: clk_i, load of 12 bits. DEPTH words."))
    assert "| `load` | input | 12 |" in table
    assert "| `clk_i` | input | 1 |" in table
    assert "hidden_q" not in table
    assert "as far as it can be read" in table
    assert "Parameters: `DEPTH`." in table


def test_the_table_omits_a_width_that_the_text_does_not_contain():
    table = interface_table(problem("Module box: clk_i and a bus load."))
    assert "| `load` | input | as specified |" in table
    assert "| `load` | input | 12 |" in interface_table(
        problem("Module box: `input [11:0] load`.")
    )


def test_a_text_without_names_gets_no_table():
    assert interface_table(problem("Store a word.")) is None
    (system, user) = build_messages(problem("Store a word."), "table")
    assert build_messages(problem("Store a word."), "exact") == [system, user]


@pytest.mark.parametrize("name", ["exact", "table", "examples", "full"])
def test_each_template_keeps_problem_and_format_and_adds_its_part(name):
    system, user = build_messages(problem("Module box: clk_i, load."), name)
    assert system["content"].startswith(SYSTEM)
    assert user["content"].startswith("Module box: clk_i, load.")
    assert "`rtl/box.sv` in one fenced code block" in user["content"]
    assert (EXAMPLE in system["content"]) == (name in ("examples", "full"))
    assert ("| port |" in user["content"]) == (name in ("table", "full"))


def test_the_bare_template_adds_nothing_and_several_targets_are_asked_for_as_json():
    assert build_messages(problem("Mend it."), "bare") == [
        {"role": "user", "content": "Mend it."}
    ]
    content = build_messages(problem("Mend it.", targets=("rtl/a.v", "rtl/b.v")), "exact")[-1][
        "content"
    ]
    assert (
        '{"code": [{"rtl/a.v": "<complete file>"}, {"rtl/b.v": "<complete file>"}]}' in content
    )


# The template `cvdp`: these texts were written by the public runner.

PUBLIC_SYSTEM = (
    "You are a helpful assistance.\nConsider that you have a folder structure like the following:\n\n"
    "    - rtl/*   : Contains files which are RTL code.\n"
    "    - verif/* : Contains files which are used to verify the correctness of the RTL code.\n"
    "    - docs/*  : Contains files used to document the project, like Block Guides, RTL Plans and Verification Plans.\n\n"
    "When generating files, return the file name in the correct place at the folder structure.\n"
)


def asked(*targets: str, category: str = "cid016") -> list[dict[str, str]]:
    context = {"docs/spec.md": "Count up.\n", "rtl/a.sv": "module a;\nendmodule"}
    given = {
        "prompt": "Mend it.",
        "system": "Use sed and patch.",
        "context": context,
        "targets": targets,
    }
    return build_messages(a_problem(category=category, **given), "cvdp")


def test_the_public_runner_asks_for_one_file_as_plain_text():
    system, user = asked("rtl/a.sv")
    assert system == {
        "role": "system",
        "content": PUBLIC_SYSTEM + "\nYou are solving an 'RTL Debugging and Bug Fixing' problem. To solve this problem correctly, you should"
        " only respond with the RTL code that is debugged and fixed to address the bug.\n",
    }  # fmt: skip
    assert user == {
        "role": "user",
        "content": "\nConsider the following content for the file docs/spec.md:\n```\nCount up.\n\n```"
        "\nConsider the following content for the file rtl/a.sv:\n```\nmodule a;\nendmodule\n```"
        "\nProvide me one answer for this request: Mend it.\n"
        "Please provide your response as plain text without any JSON formatting. Your response will be saved directly to: rtl/a.sv.\n",
    }


def test_the_public_runner_asks_for_several_files_as_json():
    system, user = asked("rtl/a.sv", "rtl/b.sv", category="cid002")
    assert system["content"] == (
        PUBLIC_SYSTEM + "\nYou are solving an 'RTL Code Completion' problem. To solve this problem correctly, you should only respond with the"
        " RTL code generated according to the requirements.\n"
        "\nProvide the response in one of the following JSON schemas: \n"
        '{ "code": [{ "<name>" : "<code>"}] }\nor\n{ "response": "<response>" }\n'
        "The response should be in JSON format, including double-quotes around keys and values, and proper escaping of quotes within"
        " values, and escaping of newlines."
    )  # fmt: skip
    assert user["content"].endswith(
        "request: Mend it.\nName the files as: ['rtl/a.sv', 'rtl/b.sv'].\n"
    )
