"""Settings of fp8 inference: files with errors that name line and mend, options, lists."""

from __future__ import annotations

import re

import pytest

from hpu_magic.errors import HPUError
from hpu_magic.runtime.precision.fp8.settings import CHOICES, KEYS, STATS, settings

MODULES = {"": "Net", "encoder": "Sequential", "encoder.0": "Linear", "head": "Linear"}
QUANTIZABLE = ["Linear", "Conv2d", "Matmul"]


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> str:
        path = tmp_path / "fp8.json"
        path.write_text(text)
        return str(path)

    return write_file


def refusal(*arguments, **given) -> str:
    with pytest.raises(HPUError) as refused:
        settings(*arguments, **given)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "line", "mend"),
    [
        ('{\n  "mode": "MEASURE",\n}', 2, "there is a comma before the closing bracket; remove it"),
        ('{"allowlist": {"types": [\n"Linear",\n]}}', 2, "there is a comma before"),
        ('{\n  "mode": "MEASURE"\n  "observer": "maxabs"\n}', 2, "a comma is missing at the end"),
        ("{\n'mode': \"MEASURE\"}", 2, "JSON needs double quotation marks"),
        ("{\"mode\":\n'MEASURE'}", 2, "JSON needs double quotation marks"),
        ('{\n\n  // both steps\n  "mode": "MEASURE"}', 3, "JSON has no comments; remove it"),
        ('{"mode": "MEASURE"} # end', 1, "JSON has no comments"),
        ('{\n"use_qdq": True}', 2, "True is not JSON; write true"),
        ('{\n"use_qdq": None}', 2, "None is not JSON; write null"),
        ('{"mode": "MEASURE",\n"blocklist": {"types": []', 2, "the file ends too early"),
        ("", 1, "the file is empty"),
        ('{"mode": "MEASURE"}\n{}', 2, "there is text after the object"),
        ('{"mode": MEASURE}', 1, "this is not JSON: expecting value"),
        ("[1]", 1, "settings must be an object, not a list"),
        ('{"observer": "max', 1, "a quotation mark is missing"),
        ('{\n"observer": "maxabs,\n"use_qdq": true}', 2, "a quotation mark is missing"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line_and_the_mend(write, text, line, mend):
    path = write(text)
    said = refusal("MEASURE", path)
    assert re.match(rf"{re.escape(path)}, line {line}( \(|: )", said), said
    assert mend in said


def test_the_mend_makes_the_file_right(write):
    wrong = '{\n"mode": "QUANTIZE",\n"use_qdq": True\n}'
    assert "line 3" in refusal("QUANTIZE", write(wrong))
    assert settings("QUANTIZE", write(wrong.replace("True", "true"))).values["use_qdq"] is True


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ('{\n"scale_metod": 1}', 2, "there is no setting 'scale_metod': did you mean"),
        ('{\n\n"scale_method": "maxabs_hv"}', 3, "no scale_method 'maxabs_hv': did you mean"),
        ('{"observer": 3}', 1, "there is no observer 3: use maxabs,"),
        ('{\n"use_qdq": "yes"}', 2, "use_qdq is 'yes': write true or false"),
        ('{\n"allowlist": ["Linear"]}', 2, "allowlist is ['Linear']: write {"),
        ('{"blocklist": {\n"type": []}}', 2, "blocklist has no part 'type': did you mean 'types'"),
        ('{"blocklist": {"types": [],\n"names": "head"}}', 2, "names of the blocklist is 'head'"),
        ('{"blocklist": {\n"names": ["a("]}}', 2, "'a(' is not a regular expression"),
        ('{"dump_stats_path": ""}', 1, "dump_stats_path is '': write a path"),
        ('{\n"mode": "QUANTIZE"}', 2, "the mode is QUANTIZE, and this is the step MEASURE"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_line(write, text, line, sentence):
    path = write(text)
    said = refusal("MEASURE", path)
    assert said.startswith(f"{path}, line {line}: ")
    assert sentence in said


def test_a_wrong_option_is_not_the_files_fault(write):
    said = refusal("QUANTIZE", write('{"scale_method": "maxabs_hw"}'), scale_method="maxabs")
    assert said.startswith("There is no scale_method 'maxabs'")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "cannot be read" in refusal("MEASURE", str(tmp_path / "none.json"))
    assert "cannot be read" in refusal("MEASURE", str(tmp_path))
    said = refusal("MEASURE", "~nobody_has_this_name/fp8.json")
    assert said == (
        "The settings '~nobody_has_this_name/fp8.json' cannot be read: Could not determine home "
        "directory."
    )


def test_a_number_that_python_does_not_read_is_refused(write):
    path = write('{"calibration_sample_interval": ' + "1" * 5000 + "}")
    assert f"The settings {path!r} cannot be read: " in refusal("MEASURE", path)


def test_a_file_may_begin_with_the_mark_of_utf_8(tmp_path):
    path = tmp_path / "fp8.json"
    path.write_text('{"dump_stats_path": "a/b"}', encoding="utf-8-sig")
    assert settings("MEASURE", str(path)).stats == "a/b"


def test_a_list_goes_by_two_names(write):
    path = write('{"blocklist": {"names": ["a"]}, "blacklist": {"names": ["b"], "types": ["C"]}}')
    assert settings("MEASURE", path).values["blocklist"] == {"types": ["C"], "names": ["a", "b"]}
    for name in ("blocklist", "blacklist"):
        found = settings("MEASURE", path, **{name: {"names": ["option"]}}).values
        assert found["blocklist"] == {"types": [], "names": ["option"]}
        assert "blacklist" not in found


def test_options_win_over_the_file_and_quant_config_names_it(write, monkeypatch):
    path = write('{"mode": "MEASURE", "observer": "save", "dump_stats_path": "a/b"}')
    monkeypatch.setenv("QUANT_CONFIG", path)
    found = settings("MEASURE", observer="maxabs", scale_method=None)
    assert (found.source, found.observer, found.stats) == (path, "maxabs", "a/b")
    assert "scale_method" not in found.values
    monkeypatch.delenv("QUANT_CONFIG")
    assert settings("MEASURE").source == ""
    assert settings("MEASURE").stats == STATS


def test_settings_have_the_form_that_neural_compressor_takes(write):
    path = write(
        '{"method": "HOOKS", "mode": "quantize", "whitelist": {"types": ["Linear"]}, '
        '"scale_method": "MAXABS_HW", "dynamic_quantization": "False", "dump_stats_path": "stats"}'
    )
    found = settings("QUANTIZE", path).values
    assert found["allowlist"] == {"types": ["Linear"], "names": []}
    assert found["blocklist"] == {"types": [], "names": []}
    assert found["mode"] == "QUANTIZE"
    assert found["dynamic_quantization"] is False
    assert found["dump_stats_path"] == "./stats"  # it needs a folder
    assert "whitelist" not in found


def test_every_documented_setting_and_value_is_taken():
    for key, values in CHOICES.items():
        for value in values if key != "mode" else ():
            assert settings("QUANTIZE", **{key: value.swapcase()}).values[key] == value
    assert {"mode", "observer", "allowlist", "blocklist", "dump_stats_path"} < set(KEYS)
    assert {"scale_method", "measure_exclude", "scale_format", "device_for_scales"} < set(KEYS)
    assert {"dynamic_quantization", "scale_params", "fp8_config"} < set(KEYS)
    assert settings("QUANTIZE", scale_params={"input_backoff": 0.25}).values["scale_params"]


def lists(**given):
    return settings("MEASURE", **given).check_lists(MODULES, QUANTIZABLE)


@pytest.mark.parametrize(
    ("which", "entries", "sentence"),
    [
        ("blocklist", {"names": ["haed"]}, "'haed', but no module has it: did you mean 'head'?"),
        ("allowlist", {"names": ["zzz"]}, "'zzz', but no module has it: its modules are encoder,"),
        (
            "blocklist",
            {"types": ["Linaer"]},
            "'Linaer', but no module has it: did you mean 'Linear",
        ),
        ("allowlist", {"types": ["Sequential"]}, "cannot be quantized: in this model, Linear can"),
    ],
)
def test_lists_that_mean_nothing_in_the_model_are_refused(which, entries, sentence):
    with pytest.raises(HPUError) as refused:
        lists(**{which: entries})
    assert sentence in str(refused.value)


def test_lists_choose_by_class_and_by_a_part_of_the_name():
    layers = [("encoder.0", "Linear"), ("head", "Linear"), ("mix", "Matmul")]

    def chosen(**given):
        return [name for name, _ in settings("MEASURE", **given).selected(layers)]

    assert chosen() == ["encoder.0", "head", "mix"]
    assert chosen(blocklist={"types": ["Linear"]}) == ["mix"]
    assert chosen(blocklist={"names": ["enc"]}) == ["head", "mix"]
    assert chosen(allowlist={"names": ["^head$"], "types": ["Matmul"]}) == ["head", "mix"]
    assert chosen(allowlist={"types": ["Linear"]}, blocklist={"names": ["head"]}) == ["encoder.0"]
    lists(blocklist={"types": ["Conv2d"], "names": [r"encoder\.\d"]})  # what it could have


CONVOLUTION = [("stem", "Conv2d"), ("head", "Linear")]


@pytest.mark.parametrize(
    ("given", "generation", "sentence"),
    [
        (
            {"dynamic_quantization": True},
            "GAUDI2",
            "maxabs_hw uses fixed scales or those of the hardware",
        ),
        ({"dynamic_quantization": True, "scale_method": "unit_scale"}, "GAUDI2", "use maxabs_pow"),
        ({"scale_method": "maxabs_pcs_pow2"}, "GAUDI2", "is for dynamic quantization"),
        (
            {"device_for_scales": "GAUDI3"},
            "GAUDI2",
            "does not support scales of GAUDI3",
        ),
        (
            {"device_for_scales": "GAUDI2", "scale_method": "maxabs_pow2"},
            *("GAUDI3", "A GAUDI3 does not support scales of GAUDI2 with the method maxabs_pow2"),
        ),
        (
            {"scale_method": "act_maxabs_pow2_weights_pcs_opt_pow2"},
            *("GAUDI2", "which the convolution 'stem' does not support: block Conv2d"),
        ),
    ],
)
def test_a_scale_method_that_does_not_fit_is_refused(given, generation, sentence):
    with pytest.raises(HPUError) as refused:
        settings("QUANTIZE", **given).check_method(CONVOLUTION, generation)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("given", "generation"),
    [
        ({}, "GAUDI2"),
        ({"dynamic_quantization": True, "scale_method": "maxabs_pow2"}, "GAUDI2"),
        ({"device_for_scales": "GAUDI2"}, "GAUDI2"),
        ({"device_for_scales": "GAUDI2"}, "GAUDI3"),
        ({"scale_method": "act_maxabs_hw_weights_pcs_maxabs_pow2"}, "GAUDI3"),
    ],
)
def test_a_scale_method_that_fits_is_taken(given, generation):
    layers = CONVOLUTION if "weights_pcs" not in given.get("scale_method", "") else CONVOLUTION[1:]
    settings("QUANTIZE", **given).check_method(layers, generation)
