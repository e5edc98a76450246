"""A configuration is validated completely before anything starts, and each mistake is reported with its line."""

import importlib
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtl_core.config import RunConfig, load_config, shipped_configs, to_toml
from rtl_core.cost.estimate import planned_groups
from rtl_core.errors import ConfigError
from tests.command import invoke


def demo(*overrides: str) -> RunConfig:
    return load_config("demo", overrides, environment={})


def broken(tmp_path: Path, **replace: str) -> Path:
    text = shipped_configs()["demo"].read_text()
    for old, new in replace.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def test_a_loss_and_its_parameters_must_be_registered():
    def settings_of(*overrides):
        return demo(*overrides).learning.loss_settings

    assert settings_of() == {}
    clip = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.2}
    assert settings_of("learning.loss=ppo", "learning.clip_low=0.9") == clip
    assert settings_of("learning.loss=ppo") == {
        "clip_low_threshold": 0.8,
        "clip_high_threshold": 1.2,
    }
    assert settings_of("learning.loss=cispo") == {
        "clip_low_threshold": 0.0,
        "clip_high_threshold": 4.0,
    }
    only_low = settings_of("learning.loss=cispo", "learning.clip_low=0.8")
    assert only_low == {"clip_low_threshold": 0.8, "clip_high_threshold": 4.0}
    high = "learning.loss_parameters={clip_high_threshold = 3.0}"
    assert settings_of("learning.loss=cispo", high)["clip_high_threshold"] == 3.0
    # `dro` has a gradient at prompt tokens.
    with pytest.raises(ConfigError, match="unknown loss 'dro'"):
        settings_of("learning.loss=dro")
    with pytest.raises(
        ConfigError,
        match=r"`learning\.loss`: unknown loss 'cross_entropy'; known: importance_sampling, ",
    ):
        settings_of("learning.loss=cross_entropy")
    with pytest.raises(
        ConfigError,
        match=r"`learning\.loss_parameters`: ppo has no parameter beta \(has: clip_low",
    ):
        settings_of("learning.loss=ppo", "learning.loss_parameters={beta = 1.0}")


def test_printed_toml_loads_to_the_same_configuration(tmp_path):
    config = demo(
        "run.seed=7",
        "run.directory=a\x7fb",
        "learning.kl_clamp=5.0",
        'health.ranges={"optim/entropy" = {min = 0.02}}',
    )
    path = tmp_path / "shown.toml"
    path.write_text(to_toml(config))
    assert load_config(path, environment={}) == config


def test_a_name_that_is_not_utf8_is_refused():
    with pytest.raises(ConfigError, match=r"--set .*: 'caf\\udce9' is not UTF-8 text"):
        demo("run.directory=caf\udce9")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_config("caf\udce9.toml")


def test_every_field_is_documented():
    for line in to_toml(demo()).split("\n\n"):
        for key in (row for row in line.splitlines() if "=" in row and not row.startswith("#")):
            before = line.splitlines()[line.splitlines().index(key) - 1]
            assert before.startswith("# "), key


def test_each_mistake_is_reported_with_its_line(tmp_path):
    path = broken(tmp_path, group_size="group_siz", **{"heldout = 64": 'heldout = "many"'})
    lines = path.read_text().splitlines()
    with pytest.raises(ConfigError) as error:
        load_config(path, environment={})
    message = str(error.value)
    assert (
        f"line {lines.index('group_siz = 16') + 1}: `sampling.group_siz`: unknown key"
        in message
    )
    assert (
        f"line {lines.index('heldout = ' + chr(34) + 'many' + chr(34)) + 1}: `problems.sources.0.heldout`"
        in message
    )
    assert "did you mean sampling.group_size?" in message
    assert "at least 1 item" not in message


REFUSED = tomllib.loads((Path(__file__).parent / "refused.toml").read_text())["cases"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: " ".join(case["set"]))
def test_invalid_combinations_are_refused_with_the_key_to_change(case):
    with pytest.raises(ConfigError, match=f"`{case['says']}"):
        load_config(case.get("config", "demo"), case["set"], environment={})


@pytest.mark.parametrize(
    ("overrides", "uses"),
    [
        (["learning.kl_weight=0.5", "learning.kl_schedule=constant"], True),
        (["learning.kl_weight=0", "learning.kl_schedule=constant"], False),
        # Without a schedule the final weight is not used.
        (
            [
                "learning.kl_weight=0",
                "learning.kl_schedule=constant",
                "learning.final_kl_weight=0.5",
            ],
            False,
        ),
        (["learning.kl_weight=0", "learning.kl_schedule=cosine"], False),
        (["learning.kl_weight=0.5", "learning.kl_schedule=cosine"], True),
        (
            [
                "learning.kl_weight=0",
                "learning.kl_schedule=linear",
                "learning.final_kl_weight=0.5",
            ],
            True,
        ),
        (
            ["learning.kl_weight=0.1", "learning.kl_schedule=target", "learning.kl_target=0.2"],
            True,
        ),
    ],
)
def test_uses_kl_is_true_if_the_weight_is_above_0_in_some_step(overrides, uses):
    """All checks that depend on it agree: teacher, temperature, group size and steps."""
    learning = demo(*overrides).learning
    assert learning.uses_kl == uses == any(learning.uses_kl_at(step, 10) for step in range(10))

    def is_refused(*more):
        try:
            demo(*overrides, *more)
        except ConfigError:
            return True
        return False

    assert is_refused("sampling.temperature=0.7") == uses
    assert is_refused("sampling.group_size=1") != uses
    assert is_refused("learning.reward_weight=0") != uses
    config = demo(*overrides, "learning.warm_start_steps=0").model_dump()
    config["tinker"]["teacher"], config["evaluation"]["teacher"] = None, False
    if uses:
        with pytest.raises(ValueError, match=r"tinker\.teacher"):
            RunConfig.model_validate(config)
    else:
        RunConfig.model_validate(config)


def test_a_missing_file_is_reported_with_its_line():
    with pytest.raises(
        ConfigError, match=r"line \d+: `problems.sources.0.path`: there is no data/"
    ):
        load_config("cvdp", environment={})


def test_the_environment_overrides_the_file_and_set_overrides_both():
    environment = {"RTL_DISTILL__RUN__SEED": "5", "RTL_DISTILL__RUN__NAME": "night"}
    config = load_config("demo", ["run.seed=6"], environment=environment)
    assert (config.run.seed, config.run.name) == (6, "night")
    with pytest.raises(ConfigError, match="environment variable RTL_DISTILL__RUN__SEDE"):
        load_config("demo", environment={"RTL_DISTILL__RUN__SEDE": "5"})


def test_setting_one_entry_of_a_table_keeps_the_others(tmp_path):
    default = demo().reward.weights
    config = demo("reward.weights.tests=2")
    assert config.reward.weights == {**default, "tests": 2.0}
    whole = demo("reward.weights={tests = 2.0}", "reward.weights.format=1")
    assert whole.reward.weights == {"tests": 2.0, "format": 1.0}
    assert demo().reward.weights == default


def test_a_file_with_a_byte_order_mark_and_crlf_is_read(tmp_path):
    path = tmp_path / "windows.toml"
    text = shipped_configs()["demo"].read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8-sig", newline="\r\n")
    assert load_config(path, environment={}) == demo()


def test_the_shipped_run_on_real_rtl_names_its_data_and_ends_with_rl(
    tmp_path,
):
    with pytest.raises(ConfigError, match=r"git clone .*RTL-BenchLS"):
        load_config(
            "smollm2-rtl", ("problems.sources.0.path=RTL-BenchLS/none",), environment={}
        )
    (tmp_path / "m.v").write_text("module m (input a, output y); assign y = ~a; endmodule\n")
    own = f"problems.sources.0.path={tmp_path}"
    config = load_config("smollm2-rtl", (own,), environment={})
    (source,) = config.problems.sources
    supervised = config.learning.warm_start_steps * config.problems_of_step(0)
    assert supervised < source.train_problems
    assert config.learning.imitates_golden
    assert not config.learning.uses_kl  # no teacher
    assert (config.tinker.local_device, config.prompting.template) == ("auto", "window")


def test_errors_in_toml_and_overrides_say_what_to_do(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("[run\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(path, environment={})
    path.write_bytes(b"\xff")
    for unreadable, reason in ((path, "it is not UTF-8 text"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"cannot read the configuration .*: {reason}"):
            load_config(unreadable, environment={})
    with pytest.raises(ConfigError, match="letters, digits"):
        demo("run.name=a/b")
    for incomplete in ("run.seed", "=1"):
        with pytest.raises(ConfigError, match=r"section\.key=value"):
            demo(incomplete)
    for unquoted in ("reward.plugins=[brevity]", "learning.loss_parameters={clip = 3.0"):
        with pytest.raises(ConfigError, match="put each text in quotes"):
            demo(unquoted)
    with pytest.raises(ConfigError, match="one of: cvdp, demo"):
        load_config("nosuch", environment={})


def test_the_embedded_service_accepts_any_rank():
    assert demo("tinker.lora_rank=24").tinker.lora_rank == 24


def test_teachers_are_selected_by_source():
    saved = "tinker://a:train:0/sampler_weights/b"
    tinker = demo(f'tinker.teachers={{cvdp = "{saved}"}}').tinker
    assert [tinker.teacher_of(source) for source in ("cvdp", "starter", None)] == [
        saved,
        "teacher",
        "teacher",
    ]
    assert tinker.named_teachers == {"tinker.teacher": "teacher", "tinker.teachers.cvdp": saved}


@pytest.mark.parametrize("order", ["shuffled", "pools"])
def test_supervised_steps_may_have_more_problems_than_rl_steps(order):
    config = demo(
        "learning.warm_start_steps=3",
        "learning.warm_start_problems=24",
        f'curriculum.order="{order}"',
        "curriculum.problems_per_step=8",
        "run.epochs=2",
    )
    last = 8 if order == "pools" else 4  # with pools each RL step draws again
    assert planned_groups(config, 100) == [24] * 3 + [8] * 3 + [last] + [8] * 12 + [last]
    assert [sum(config.step_sizes(100, first)) for first in (0, 1, 7)] == [100] * 3
    assert planned_groups(config, 30) == [24, 6, 24, 8 if order == "pools" else 6]


def test_the_shipped_cvdp_run_has_100_to_220_steps_and_a_teacher_in_the_first_half():
    config = load_config("cvdp", environment={}, check_files=False)
    steps = len(planned_groups(config, round(0.8 * 302) + 64))
    assert 100 <= steps <= 220
    asked = [config.learning.uses_kl_at(step, steps) for step in range(steps)]
    assert asked == sorted(asked, reverse=True)
    assert sum(asked) == steps // 2 - 1
    assert config.learning.loss_settings == {
        "clip_low_threshold": 0.0,
        "clip_high_threshold": 4.0,
    }
    assert not config.problems.require_golden


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("run.nam", "run.name"),
        ("learning.kl_wieght", "learning.kl_weight"),
        ("sampling.learning_rate", "learning.learning_rate"),
        ("samplign.temperature", "sampling"),
        ("tinker.studnet", "tinker.student"),
        ("problems.sources.0.trian", "problems.sources.0.train"),
        ("run.zzz", None),
    ],
)
def test_an_unknown_key_gets_the_most_similar_one_or_none(key, meant):
    with pytest.raises(ConfigError, match="unknown key") as refused:
        load_config("demo", [f"{key}=1"], environment={})
    assert ("did you mean" in str(refused.value)) is (meant is not None)
    assert meant is None or f"did you mean {meant}" in str(refused.value)


@pytest.mark.parametrize("flow", ["train:train", "validate:validate"])
def test_a_trigger_with_an_unknown_key_is_refused_before_a_worker_takes_it(flow):
    from prefect.utilities.callables import parameter_schema
    from prefect.utilities.schema_tools.validation import ValidationError, is_valid, validate

    module, name = flow.split(":")
    function = getattr(importlib.import_module(f"rtl_distill.flows.{module}"), name)
    schema = parameter_schema(function).model_dump_for_openapi()
    right = [
        "run.name=x",
        " run.seed = 3",
        "problems.sources.0.train=8",
        "reward.weights.tests=1",
        'health.ranges."a/b"={max=1}',
        "learning.learning_rate=3e-3",
        "curriculum.order = 'pools'",
        "evaluation.teacher=false",
        "cost.budget_usd=50",
        "evaluation.k=[1, 2]",
    ]
    assert is_valid({"config": "demo", "overrides": right}, schema)
    assert is_valid({"config": "demo"}, schema)
    for wrong in (
        "run.nam=x",
        "run.namex=x",
        "name=x",
        "nothing",
        "run=x",
        "learning.kl_weightx.y=1",
        "learning.kl_weight=much",
        "run.epochs=three",
        "curriculum.order=pool",
        "evaluation.teacher=maybe",
    ):
        assert not is_valid({"overrides": [wrong]}, schema), wrong
        with pytest.raises(ValidationError) as refused:
            validate({"overrides": ["run.seed=1", wrong]}, schema, raise_on_error=True)
        assert "overrides[1]" in str(refused.value)
        assert repr(wrong) in str(refused.value)
        assert "`rtl-distill check --show`" in str(refused.value)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({}, "train demo"),
        ({"overrides": ["run.name=mine", "run.seed=1"]}, "train mine"),
        (
            {
                "config": "cvdp",
                "overrides": ["run.name=other"],
                "options": {"run_name": "third"},
            },
            "train third",
        ),
        ({"config": "smollm2"}, "train smollm2"),
        ({"config": "no-such-file.toml"}, "train no-such-file.toml"),
        ({"overrides": ["run.nam=x"]}, "train demo"),
        ({"overrides": ["run.name=mine", "evaluation.k=[9]"]}, "train mine"),
    ],
)
def test_a_flow_run_is_named_by_its_run(monkeypatch, parameters, name):
    from rtl_distill.tasks import orchestration

    monkeypatch.setattr(
        orchestration, "flow_run", SimpleNamespace(parameters=parameters, flow_name="train")
    )
    assert orchestration.named_by_run() == name


def test_misspelt_names_of_files_and_models_have_a_suggestion(tmp_path):
    (tmp_path / "my-run.toml").touch()
    with pytest.raises(ConfigError, match=r"did you mean .*my-run\.toml\?"):
        load_config(tmp_path / "my-run.tml")
    done = invoke("check", "demo", "--estimate", sets=["tinker.teacher=techer"])
    assert "did you mean teacher" in str(done.exception)
