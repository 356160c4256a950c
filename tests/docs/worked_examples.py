"""The worked examples of CONTRIBUTING.md as steps that write or change files."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"

_SECTION = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(
    r"`(?P<path>(?:hpu_magic|tests|tools)/[\w/.]+)`[^`]*?\n\n"
    r"<!-- not run: test_worked_examples\.py -->\n"
    r"```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Step:
    """A file that an example writes or, if the language is ``diff``, changes."""

    path: str
    language: str
    code: str

    def apply(self, project: Path) -> None:
        """Apply the step to the project in a folder.

        Raises ValueError if the file exists or if the lines of a change do not occur exactly once.
        """
        file = project / self.path
        if self.language != "diff":
            if file.exists():
                raise ValueError(f"{self.path} already exists")
            file.write_text(self.code)
            return
        text = file.read_text()
        for hunk in self.code.split("@@\n"):
            before, after = _side(hunk, "-"), _side(hunk, "+")
            if f"\n{text}".count(f"\n{before}") != 1:
                raise ValueError(f"{self.path} contains {text.count(before)} times:\n{before}")
            text = text.replace(before, after)
        file.write_text(text)


def examples() -> dict[str, list[Step]]:
    """Return the steps of each example by its heading."""
    return {
        heading: [Step(**match.groupdict()) for match in _BLOCK.finditer(text)]
        for heading, text in _SECTION.findall(PAGE.read_text())
    }


def _side(hunk: str, sign: str) -> str:
    """Return the lines before (``-``) or after (``+``) a change."""
    lines = hunk.splitlines(keepends=True)
    return "".join(line[1:] for line in lines if line[0] in (" ", sign))
