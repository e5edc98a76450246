"""Templates for compliance: what each adds, and that none tells what the specification hides."""

import pytest

from rtl_core.config import load_config
from rtl_core.config.models import PromptingSection
from rtl_core.errors import ConfigError
from rtl_core.prompting.messages import SYSTEM, build_messages
from rtl_core.prompting.templates import TEMPLATES
from rtl_core.prompting.templates.shipped import EXAMPLE, interface_table
from rtl_core.types.problem import Interface, InterfaceSource, Parameter, Port, Problem
from tests.nouns import a_problem


def problem(prompt: str, **changes) -> Problem:
    ports = (
        Port(name="clk_i", direction="input", width=1),
        Port(name="load", direction="input", width=12),
        Port(name="hidden_q", direction="output", width=12),
    )
    interface = Interface(
        module="box",
        ports=ports,
        parameters=(Parameter(name="DEPTH", default=4),),
        source=InterfaceSource.GOLDEN,
    )
    return a_problem(**{"prompt": prompt, "targets": ("rtl/box.sv",), "interface": interface, **changes})


def test_the_configuration_takes_and_explains_every_template_and_no_other():
    assert PromptingSection().template == "exact"
    assert set(TEMPLATES.entries) >= {"bare", "exact", "table", "examples", "full"}
    for name, template in TEMPLATES.entries.items():
        assert PromptingSection(template=name).template == name
        assert template.__doc__ in PromptingSection.model_fields["template"].description
    with pytest.raises(ValueError, match="no template 'exakt'; choose one of bare, brief, cvdp, exact, examples"):
        PromptingSection(template="exakt")
    with pytest.raises(ValueError, match="two templates named 'exact'"):
        TEMPLATES.register("exact")(abs)


def test_a_template_of_the_users_own_is_named_by_its_import_path():
    config = load_config("demo", ["prompting.template=own_template:terse"], environment={})
    asked = problem("Module box.", context={"rtl/x.v": "wire a;"})
    (user,) = build_messages(asked, config.prompting.template)
    assert user["content"].startswith("Module box.\n\nFile `rtl/x.v`:")
    assert user["content"].endswith(build_messages(asked, "exact")[1]["content"][-40:])
    with pytest.raises(
        ConfigError, match=r"own_template:curt.*: `prompting.template`: `curt` in own_template is no template"
    ):
        load_config("demo", ["prompting.template=own_template:curt"], environment={})


def test_the_table_lists_what_the_text_shows_and_nothing_else():
    table = interface_table(problem("Module box: clk_i, load of 12 bits. DEPTH words."))
    assert "| `load` | input | 12 |" in table
    assert "| `clk_i` | input | 1 |" in table
    assert "hidden_q" not in table
    assert "as far as it can be read" in table
    assert "Parameters: `DEPTH`." in table


def test_a_width_that_the_text_does_not_name_is_not_told():
    table = interface_table(problem("Module box: clk_i and a bus load."))
    assert "| `load` | input | as specified |" in table
    assert "| `load` | input | 12 |" in interface_table(problem("Module box: `input [11:0] load`."))


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
    assert build_messages(problem("Mend it."), "bare") == [{"role": "user", "content": "Mend it."}]
    content = build_messages(problem("Mend it.", targets=("rtl/a.v", "rtl/b.v")), "exact")[-1]["content"]
    assert '{"code": [{"rtl/a.v": "<complete file>"}, {"rtl/b.v": "<complete file>"}]}' in content
