"""The template `cvdp` is the public runner's prompt, byte for byte; what stands here was written by that runner."""

from rtl_core.prompting.messages import build_messages
from tests.nouns import a_problem

SYSTEM = (
    "You are a helpful assistance.\nConsider that you have a folder structure like the following:\n\n"
    "    - rtl/*   : Contains files which are RTL code.\n"
    "    - verif/* : Contains files which are used to verify the correctness of the RTL code.\n"
    "    - docs/*  : Contains files used to document the project, like Block Guides, RTL Plans and Verification Plans.\n\n"
    "When generating files, return the file name in the correct place at the folder structure.\n"
)


def asked(*targets: str, category: str = "cid016") -> list[dict[str, str]]:
    context = {"docs/spec.md": "Count up.\n", "rtl/a.sv": "module a;\nendmodule"}
    given = {"prompt": "Mend it.", "system": "Use sed and patch.", "context": context, "targets": targets}
    return build_messages(a_problem(category=category, **given), "cvdp")


def test_one_file_is_asked_for_as_plain_text():
    system, user = asked("rtl/a.sv")
    assert system == {
        "role": "system",
        "content": SYSTEM + "\nYou are solving an 'RTL Debugging and Bug Fixing' problem. To solve this problem correctly, you should"
        " only respond with the RTL code that is debugged and fixed to address the bug.\n",
    }  # fmt: skip
    assert user == {
        "role": "user",
        "content": "\nConsider the following content for the file docs/spec.md:\n```\nCount up.\n\n```"
        "\nConsider the following content for the file rtl/a.sv:\n```\nmodule a;\nendmodule\n```"
        "\nProvide me one answer for this request: Mend it.\n"
        "Please provide your response as plain text without any JSON formatting. Your response will be saved directly to: rtl/a.sv.\n",
    }


def test_several_files_are_asked_for_as_json():
    system, user = asked("rtl/a.sv", "rtl/b.sv", category="cid002")
    assert system["content"] == (
        SYSTEM + "\nYou are solving an 'RTL Code Completion' problem. To solve this problem correctly, you should only respond with the"
        " RTL code generated according to the requirements.\n"
        "\nProvide the response in one of the following JSON schemas: \n"
        '{ "code": [{ "<name>" : "<code>"}] }\nor\n{ "response": "<response>" }\n'
        "The response should be in JSON format, including double-quotes around keys and values, and proper escaping of quotes within"
        " values, and escaping of newlines."
    )  # fmt: skip
    assert user["content"].endswith("request: Mend it.\nName the files as: ['rtl/a.sv', 'rtl/b.sv'].\n")
