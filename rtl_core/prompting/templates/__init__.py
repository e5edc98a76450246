"""Prompt templates: functions from a problem to chat messages. Each file of this package registers some.

A template of your own is such a function in your own module; `prompting.template` names it `module:function`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rtl_core.registry import Registry
from rtl_core.types.problem import Problem

Message = dict[str, str]
Template = Callable[[Problem, Mapping[str, str]], list[Message]]
"""(problem, context files to show: path -> text) -> messages of `role` and `content`. `config --show` prints its docstring."""

TEMPLATES: Registry[Template] = Registry("template", __name__, callable)
