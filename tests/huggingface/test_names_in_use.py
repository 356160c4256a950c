"""Every name of the vendor's that Hugging Face's libraries use exists and answers them."""

import json
import textwrap

import pytest
from names_in_use import PRELUDE, PROGRAMS

RUN = """
failed = {}
for name, program in PROGRAMS.items():
    try:
        exec(program, dict(globals()))
    except Exception:
        failed[name] = traceback.format_exc(limit=-2)
import json
print(json.dumps(failed))
"""


@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_each_name_answers_as_its_callers_expect(forked_script, lazy):
    programs = {name: textwrap.dedent(text) for name, text in PROGRAMS.items()}
    code = f"{PRELUDE}\nPROGRAMS = {programs!r}\n{RUN}"
    printed = forked_script(code, simulated=True, PT_HPU_LAZY_MODE=lazy)
    failed = json.loads(printed.splitlines()[-1])
    assert not failed, "\n".join(f"{name}: {text}" for name, text in failed.items())
