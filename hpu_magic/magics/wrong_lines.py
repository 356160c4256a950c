"""Explain invalid command lines: show the problem, a valid line, and all options."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from IPython.core.error import UsageError

from hpu_magic.commands.parameters import Variable, Words
from hpu_magic.errors import choice
from hpu_magic.magics.settings import Configured, HPUMagics

_SYNONYMS = {
    "--cards": "-c -n --workers --devices --num-cards --nproc --count --processes --hpus --gpus",
    "--runs": "--number --times --loops --iterations --count --steps -n",
    "--repeats": "--repeat --rounds -r",
    "--inputs": "--sample --samples --args --example --batch-input -i --x --data",
    "--dtype": "--precision --format --type --fp8-format",
    "--cache-dtype": "--kv-dtype --kv",
    "--card": "--generation --gen --device --hardware --gaudi --device-for-scales --target",
    "--no-train": "--infer --inference --eval --forward --forward-only",
    "--train": "--training",
    "--dir": "--folder --directory --path --into --logdir --trace-dir --out",
    "--delete": "--drop --remove --rm --del --clear -d",
    "--all": "--verbose -v --full --everything --details --more --long",
    "--output": "--pull --save --result --name --keep -o",
    "--show": "--dry-run --no-run --diff --only",
    "--no-trace": "--quiet",
    "--panel": "--view --display --widget",
    "--restart": "--now --yes -y --force -f",
    "--lower": "--bf16 --lower-precision --ops",
    "--device": "-d --to",
    "--block": "--blocklist --exclude --skip",
    "--allow": "--allowlist --include --only",
    "--stats": "--dump-stats-path --measurements",
    "--new-tokens": "--max-new-tokens --tokens --generate",
    "--batch": "--batch-size -b --bs",
    "--checkpointing": "--recompute --gradient-checkpointing",
    "--parallel": "--strategy --sharding",
    "off": "--off --stop --disable --end",
    "on": "--on --start --enable",
}
"""Alternative names that users try for options and for the values of a switch."""
_WORDS = {
    **dict.fromkeys(("stop", "end", "kill", "shutdown", "disable", "close", "quit"), "off"),
    **dict.fromkeys(("start", "enable", "begin", "run"), "on"),
    **dict.fromkeys(("list", "show", "status", "ls"), ""),
}
"""Maps words that users try to the switch values that they mean."""
_OTHER_COMMAND = {
    ("hpu_autocast", "explain"): "%hpu_explain_autocast model --inputs x",
    ("hpu_autocast", "--explain"): "%hpu_explain_autocast model --inputs x",
    ("hpu_capture", "--list"): "%hpu_graphs",
    ("hpu_capture", "--delete"): "%hpu_graphs --delete NAME",
    ("hpu_capture", "--drop"): "%hpu_graphs --delete NAME",
    ("hpu_capture", "--runs"): "%hpu_replay NAME --runs N",
    ("hpu_capture", "-n"): "%hpu_replay NAME --runs N",
    ("hpu_wrap", "--list"): "%hpu_graphs",
    ("hpu_memory", "--live"): "%hpu_memory_live",
    ("hpu_memory", "live"): "%hpu_memory_live",
    ("hpu_memory", "off"): "%hpu_memory_live off",
    ("hpu_estimate", "--prompt"): "%hpu_estimate_generation model --prompt 512 --new-tokens 128",
    ("hpu_estimate", "--new-tokens"): "%hpu_estimate_generation model --prompt 512 "
    "--new-tokens 128",
    ("hpu_mode", "graphs"): "%%hpu_capture NAME",
    ("hpu", "--json"): "%hpu_doctor --json",
    ("hpu", "--all"): "%hpu_doctor --all",
    ("hpu_fp8_quantize", "--data"): "%hpu_fp8_measure model --data loader",
}
"""Maps a command and a word that belongs to another command to the line to type instead."""
_COMMANDS = {
    "%%hpu_capture NAME (first line of the cell to capture), %hpu_replay NAME, or %hpu_graphs to "
    "list the graphs": "hpu_graph hpu_record hpu_cuda_graph",
    "%%hpu_workers --cards 4 (first line of the cell to run), or %hpu_workers off": "hpu_parallel "
    "hpu_px hpu_distributed hpu_ranks hpu_ddp hpu_worker",
    "%hpu_fp8_measure model --inputs x, then %hpu_fp8_quantize model --inputs x in a new process": (
        "hpu_fp8 hpu_calibrate"
    ),
    "%hpu_fp8_quantize model --inputs x": "hpu_quantize hpu_quant",
    "%hpu_fp8_measure model --inputs x": "hpu_measure",
    "%%hpu_from_cuda (first line of the cell to convert)": "hpu_port hpu_cuda hpu_convert "
    "hpu_migrate hpu_translate",
    "%hpu_memory_live": "hpu_panel hpu_live hpu_monitor hpu_plot",
    "%hpu_restart": "hpu_release hpu_free hpu_reset",
    "%hpu": "hpu_status hpu_info hpu_cards hpu_card hpu_top hpu_help hpu_commands hpu_device",
    "%%hpu_fit (first line of the cell that trains)": "hpu_train hpu_trainer",
    "%hpu_explain_autocast model --inputs x": "hpu_explain hpu_dtypes",
    "%hpu_estimate_generation model --prompt 512 --new-tokens 128": "hpu_generate hpu_generation",
    "%hpu_time STATEMENT": "hpu_timeit hpu_benchmark",
    "%%hpu_profile (first line of the cell to profile)": "hpu_trace hpu_profiler hpu_prun",
    "%hpu_flags": "hpu_env hpu_flag hpu_config",
    "%hpu_mode lazy": "hpu_lazy",
    "%hpu_mode eager": "hpu_eager",
    "%hpu_doctor": "hpu_check hpu_diagnose",
    "%hpu_to model": "hpu_move hpu_cpu",
    "%%hpu_autocast (first line of the cell)": "hpu_amp hpu_bf16 hpu_mixed hpu_precision",
    "%hpu_ledger on": "hpu_cost hpu_costs hpu_fallbacks hpu_compilations",
    "%hpu_advise model --inputs x": "hpu_advice hpu_suggest hpu_optimize",
    "%%hpu_dry_run (first line of the cell)": "hpu_simulate hpu_dry hpu_fake",
    "for batch in hpu_magic.watch(loader) in your loop": "hpu_watch hpu_loop",
}
"""Maps lines to type to the nonexistent commands that users try instead."""
_VALUES = {
    "prompt": "512",
    "new_tokens": "128",
    "runs": "100",
    "repeats": "3",
    "cards": "4",
    "interval": "0.5",
    "history": "120",
    "grace": "5",
    "batch": "8",
    "objects": "model",
}
"""Option values to use in suggested lines."""
_NOT_FOUND = re.compile(r"(?:Line|Cell) magic (?:function )?`(%{1,2})(hpu\w*)` not found")


def missing_command(message: str, known: Collection[str], cells: Collection[str]) -> str | None:
    """Explain IPython's error about an unknown command; return None for other messages.

    `known` contains the names of all commands, and `cells` those of commands that exist only as
    cell magics.
    """
    match = _NOT_FOUND.search(message)
    if match is None:
        return None
    marks, name = match.groups()
    if name in cells:
        lines = {"hpu_capture": "%%hpu_capture NAME"}
        listing = ", or type %hpu_graphs to list the graphs" * (name == "hpu_capture")
        return f"Type {lines.get(name, f'%%{name}')} as the first line of a cell{listing}."
    if name in known:
        return f"%%{name} does not run a cell: type %{name} (one %)."
    for line, words in _COMMANDS.items():
        if name in words.split():
            return f"Unknown command {marks}{name}: type {line}."
    names = {command.removeprefix("hpu_"): command for command in known}
    for close in difflib.get_close_matches(name.removeprefix("hpu_"), list(names), 1, 0.7):
        similar = names[close]
        return f"Unknown command {marks}{name}: type {'%%' if similar in cells else '%'}{similar}."
    return f"Unknown command {marks}{name}: type %hpu to list all commands."


def explained(
    parser: argparse.ArgumentParser,
    marks: str,
    words: Sequence[str],
    message: str,
    variables: Collection[str],
) -> str:
    """Return an error message for a line that argparse rejected with `message`.

    `marks` is ``%`` or ``%%``, and `variables` contains the names of the user's variables.
    """
    problem, fixed = _Line(parser, marks, words, variables).diagnosed(message)
    shown = marks + parser.prog
    line = fixed if isinstance(fixed, str) else " ".join([shown, *map(_quoted, fixed or ())])
    if fixed is None:
        line = example(parser, marks)
    listed = ", ".join(syntax(action) for action in options(parser))
    return f"{shown} {problem}: type {line}" + (f"\nOptions: {listed}" if listed else "")


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a command."""
    return [one for one in parser._actions if one.option_strings]


def syntax(action: argparse.Action) -> str:
    """Return the syntax of an option, such as ``-n/--runs N`` or ``--[no-]trace``."""
    spelled = list(action.option_strings)
    if isinstance(action, argparse.BooleanOptionalAction):
        return spelled[0].replace("--", "--[no-]", 1)
    return f"{'/'.join(spelled)} {_value(action)}".rstrip()


def example(parser: argparse.ArgumentParser, marks: str) -> str:
    """Return the first example of a command's line magic or cell magic."""
    examples = (parser.description or "").partition("Examples::")[2].splitlines()
    for line in map(str.strip, examples):
        called = line.partition("= ")[2] if "= %" in line else line
        if re.match(rf"{marks}{parser.prog}\b", called):
            return called
    return f"{marks}{parser.prog}?"


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest)


def _usual(action: argparse.Action) -> str:
    """Return an action's default if it is one of its choices, else the first choice."""
    choices = [*map(str, action.choices or ())]
    default = action.default
    if isinstance(default, Configured):
        default = HPUMagics.class_traits()[default.name].default_value
    return default if default in choices else (choices or [""])[0]


def _split(word: str) -> list[str]:
    """Split ``--option=value`` into two words; leave other words unchanged."""
    name, equals, value = word.partition("=")
    return [name, value] if equals and name.startswith("--") else [word]


def _quoted(word: str) -> str:
    return f'"{word}"' if re.search(r"\s", word) or not word else word


class _Line:
    """An invalid line, and possible corrections."""

    def __init__(
        self,
        parser: argparse.ArgumentParser,
        marks: str,
        words: Sequence[str],
        variables: Collection[str],
        *,
        is_correction: bool = False,
    ) -> None:
        self._parser = parser
        self._marks = marks
        self._shown = marks + parser.prog
        self._is_correction = is_correction
        self._words = [part for word in words for part in _split(word)]
        self._variables = variables
        self._options = {name: one for one in options(parser) for name in one.option_strings}

    def diagnosed(self, message: str) -> tuple[str, str | list[str] | None]:
        """Describe the problem, and return the words or the line to type instead."""
        for word in self._words:
            if self._is_unknown_option(word):
                return self._unknown(word)
        extra = message.removeprefix("unrecognized arguments: ")
        if extra != message:
            return self._unknown(extra)
        if found := re.match(r"argument (\S+): invalid choice: '(.*?)' \(choose", message, re.S):
            return self._no_choice(found[1], found[2])
        if found := re.match(r"argument (\S+): invalid \S+ value: '(.*)'$", message, re.S):
            action = self._action(found[1])
            fixed = self._replaced(found[2], [_VALUES.get(action.dest, "4")])
            return f"needs {self._described(action)}, not {found[2]!r}", self._checked(fixed)
        if found := re.match(r"argument (\S+): expected", message):
            action = self._action(found[1])
            wrong = [one for one in self._words if one in action.option_strings]
            value = _VALUES.get(action.dest, _usual(action) or _value(action))
            line = self._replaced(wrong[0], [wrong[0], value]) if wrong else None
            return f"needs a value after {found[1]}", line
        if found := re.match(r"the following arguments are required: (.*)", message):
            return self._required(found[1].split(", "))
        if found := re.match(r"ambiguous option: (\S+) could match (.*)", message):
            return f"has several options that begin with {found[1]!r} ({found[2]})", None
        if found := re.match(r"argument (\S+): ignored explicit argument '(.*)'", message, re.S):
            return f"takes no value after {found[1]}", None
        return f"cannot parse this line ({message})", None

    def _is_unknown_option(self, word: str) -> bool:
        name = word.partition("=")[0]
        if not re.match(r"-{1,2}[a-zA-Z]", name) or name in self._options:
            return False
        attached = not name.startswith("--") and name[:2] in self._options
        return not attached and not (
            name.startswith("--") and any(one.startswith(name) for one in self._options)
        )

    def _unknown(self, extra: str) -> tuple[str, str | list[str] | None]:
        word = next((one for one in self._words if extra.startswith(one)), extra.split(" ")[0])
        other = _OTHER_COMMAND.get((self._parser.prog, word.partition("=")[0]))
        if word.startswith("-") and len(word) > 1:
            if not self._options:
                return f"takes no options, but got {word!r}", other or []
            return f"has no option {word!r}", other or self._with_option(word)
        return f"does not take {word!r}", other or self._with_word(word)

    def _with_option(self, word: str) -> str | list[str] | None:
        """Replace an unknown option with an existing one, and return the words."""
        name, equals, value = word.partition("=")
        if attached := re.fullmatch(r"(-[a-zA-Z])(\d+)", word):
            name, equals, value = attached[1], "=", attached[2]
        switch = {text for one in self._positional() for text in map(str, one.choices or ())}
        for target, names in _SYNONYMS.items():
            if name in names.split() and target in (*self._options, *switch):
                return self._checked(self._replaced(word, [target, *([value] * bool(equals))]))
        known = {one.lstrip("-"): one for one in self._options}
        plain = name.lstrip("-")
        if plain in switch:
            return self._checked(self._replaced(word, [plain]))
        if plain in {one.dest for one in self._positional()}:
            return self._checked(self._replaced(word, []))
        for action in self._options.values():
            if action.choices and choice(plain, [*map(str, action.choices)]):
                return self._checked(self._replaced(word, [action.option_strings[-1], plain]))
        for close in difflib.get_close_matches(plain, list(known), n=1, cutoff=0.7):
            fixed = self._replaced(word, [known[close], *([value] * bool(equals))])
            return self._checked(fixed) or f"{self._shown} {syntax(self._options[known[close]])}"
        return None

    def _with_word(self, word: str) -> list[str] | None:
        """Convert an extra word to an option, and return the words."""
        return next((fixed for fixed in self._options_for(word) if self._parses(fixed)), None)

    def _options_for(self, word: str) -> Iterator[list[str]]:
        name, equals, value = word.partition("=")
        if equals and f"--{name}" in self._options:
            yield self._replaced(word, [f"--{name}", value])
        if f"--{word}" in self._options:
            yield self._replaced(word, [f"--{word}"])
        for target, names in _SYNONYMS.items():
            if f"--{word}" in names.split() and target in self._options:
                yield self._replaced(word, [target])
        place = self._words.index(word) if word in self._words else 0
        option = self._options.get(self._words[place - 2]) if place > 1 else None
        reading = getattr(option, "reading", None)
        if isinstance(reading, Words) or (isinstance(reading, Variable) and reading.several):
            joined = ",".join(one.strip(",") for one in self._words[place - 1 :])
            yield [*self._words[: place - 1], joined]
        if "--inputs" in self._options and word.strip(",").partition(".")[0] in self._variables:
            rest = ",".join(one.strip(",") for one in self._words[place:])
            yield [*self._words[:place], "--inputs", rest]
        for action in self._options.values():
            if action.choices and choice(word, [*map(str, action.choices)]):
                yield self._replaced(word, [action.option_strings[-1], word])
        if re.fullmatch(r"[\d.]+", word):
            for target in ("--cards", "--runs", "--interval"):
                if target in self._options:
                    yield self._replaced(word, [target, word])
        if "," in word and "--show" in self._options:
            yield self._replaced(word, ["--show", word])
        if "--dir" in self._options:
            before = self._words[: place - ("--trace" in self._words[place - 1 : place])]
            yield [*before, "--dir", word, *self._words[place + 1 :]]

    def _no_choice(self, name: str, word: str) -> tuple[str, str | list[str] | None]:
        action = self._action(name)
        choices = [*map(str, action.choices or ())]
        listed = f"needs {self._described(action)}, not {word!r}"
        if other := _OTHER_COMMAND.get((self._parser.prog, word)):
            return f"does not take {word!r}", other
        if not action.option_strings and word in _WORDS:
            meant = _WORDS[word]
            if not meant or meant in choices:
                fixed = self._replaced(word, [meant] if meant else [])
                return f"does not take {word!r}", self._checked(fixed)
        usual = _usual(action)
        if close := difflib.get_close_matches(word, choices, n=1, cutoff=0.5):
            # For gaudi4, suggest the default gaudi2 rather than gaudi.
            meant = usual if usual.startswith(close[0]) else close[0]
            return listed, self._checked(self._replaced(word, [meant]))
        if not action.option_strings and (corrected := self._with_word(word)):
            return f"does not take {word!r}", corrected
        return listed, self._checked(self._replaced(word, [usual]))

    def _required(self, names: list[str]) -> tuple[str, list[str] | None]:
        missing = [self._action(name) for name in names]
        numbers = [word for word in self._words if word.isdigit()]
        if numbers and len(numbers) == len(missing) and {one.type for one in missing} == {int}:
            words = [word for word in self._words if word not in numbers]
            for action, number in zip(missing, numbers, strict=True):
                words += [action.option_strings[-1], number]
            if checked := self._checked(words):
                return f"does not take {numbers[0]!r}", checked
        for word in self._words[1:]:
            if not word.startswith("-") and (fixed := self._with_word(word)):
                return f"does not take {word!r}", fixed
        added: list[str] = []
        for action in missing:
            if action.option_strings:
                value = _VALUES.get(action.dest, _value(action))
                added += [action.option_strings[-1], value]
            else:
                added.insert(
                    0, _VALUES.get(action.dest, str(action.metavar or action.dest).lower())
                )
        listed = " and ".join(syntax(one) if one.option_strings else one.dest for one in missing)
        return f"needs {listed}", [*self._words, *added]

    def _positional(self) -> list[argparse.Action]:
        return [one for one in self._parser._actions if not one.option_strings]

    def _action(self, name: str) -> argparse.Action:
        spellings = name.split("/")
        for one in self._parser._actions:
            if set(spellings) & {*one.option_strings, one.dest, str(one.metavar)}:
                return one
            # argparse uses the choices of a positional argument as its name.
            if one.choices and name.strip("{}").split(",") == [*map(str, one.choices)]:
                return one
        return self._parser._actions[0]

    def _described(self, action: argparse.Action) -> str:
        kinds: dict[Any, str] = {int: "a whole number", float: "a number"}
        if action.choices:
            *others, last = map(str, action.choices)
            what = f"{', '.join(others)} or {last}" if others else last
        else:
            what = kinds.get(action.type, "a whole number or largest")
        return f"{what} after {'/'.join(action.option_strings)}" if action.option_strings else what

    def _replaced(self, word: str, by: list[str]) -> list[str]:
        place = self._words.index(word) if word in self._words else len(self._words)
        return [*self._words[:place], *by, *self._words[place + 1 :]]

    def _parses(self, words: list[str]) -> bool:
        try:
            self._parser.parse_args(words)
        except UsageError:
            return False
        return True

    def _checked(self, words: list[str]) -> list[str] | None:
        """Return the words, corrected again if necessary; return None if they cannot be parsed."""
        try:
            self._parser.parse_args(words)
        except UsageError as error:
            if self._is_correction:
                return None
            line = _Line(self._parser, self._marks, words, self._variables, is_correction=True)
            fixed = line.diagnosed(str(error))[1]
            return fixed if isinstance(fixed, list) else None
        return words
