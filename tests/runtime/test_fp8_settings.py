"""Test settings of FP8 inference: errors in files, options, lists of layers."""

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


def error_of(*arguments, **options) -> str:
    with pytest.raises(HPUError) as error:
        settings(*arguments, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        ('{\n  "mode": "MEASURE",\n}', 2, "there is a comma before the closing bracket; remove it"),
        ('{"allowlist": {"types": [\n"Linear",\n]}}', 2, "there is a comma before"),
        ('{\n  "mode": "MEASURE"\n  "observer": "maxabs"\n}', 2, "a comma is missing at the end"),
        ("{\n'mode': \"MEASURE\"}", 2, "JSON requires double quotation marks"),
        ("{\"mode\":\n'MEASURE'}", 2, "JSON requires double quotation marks"),
        (
            '{\n\n  // both steps\n  "mode": "MEASURE"}',
            3,
            "JSON does not support comments; remove",
        ),
        ('{"mode": "MEASURE"} # end', 1, "JSON does not support comments"),
        ('{\n"use_qdq": True}', 2, "True is not valid JSON; write true"),
        ('{\n"use_qdq": None}', 2, "None is not valid JSON; write null"),
        ('{"mode": "MEASURE",\n"blocklist": {"types": []', 2, "the file ends too early"),
        ("", 1, "the file is empty"),
        ('{"mode": "MEASURE"}\n{}', 2, "there is text after the object"),
        ('{"mode": MEASURE}', 1, "this is not valid JSON: expecting value"),
        ("[1]", 1, "settings must be an object, not a list"),
        ('{"observer": "max', 1, "a closing quotation mark is missing"),
        ('{\n"observer": "maxabs,\n"use_qdq": true}', 2, "a closing quotation mark is missing"),
    ],
)
def test_malformed_file_is_rejected_with_line_and_fix(write, text, line, fix):
    path = write(text)
    message = error_of("MEASURE", path)
    assert re.match(rf"{re.escape(path)}, line {line}( \(|: )", message), message
    assert fix in message


def test_fixed_file_is_read(write):
    wrong = '{\n"mode": "QUANTIZE",\n"use_qdq": True\n}'
    assert "line 3" in error_of("QUANTIZE", write(wrong))
    assert settings("QUANTIZE", write(wrong.replace("True", "true"))).values["use_qdq"] is True


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ('{\n"scale_metod": 1}', 2, "unknown setting 'scale_metod': did you mean"),
        ('{\n\n"scale_method": "maxabs_hv"}', 3, "unknown scale_method 'maxabs_hv': did you mean"),
        ('{"observer": 3}', 1, "unknown observer 3: use maxabs,"),
        ('{\n"use_qdq": "yes"}', 2, "use_qdq is 'yes': write true or false"),
        ('{\n"allowlist": ["Linear"]}', 2, "allowlist is ['Linear']: write {"),
        ('{"blocklist": {\n"type": []}}', 2, "blocklist has no part 'type': did you mean 'types'"),
        ('{"blocklist": {"types": [],\n"names": "head"}}', 2, "names of the blocklist is 'head'"),
        ('{"blocklist": {\n"names": ["a("]}}', 2, "'a(' is not a valid regular expression"),
        ('{"dump_stats_path": ""}', 1, "dump_stats_path is '': write a path"),
        ('{\n"mode": "QUANTIZE"}', 2, "the mode is QUANTIZE, but this is the MEASURE step"),
    ],
)
def test_wrong_setting_is_rejected_with_its_line(write, text, line, sentence):
    path = write(text)
    message = error_of("MEASURE", path)
    assert message.startswith(f"{path}, line {line}: ")
    assert sentence in message


def test_error_in_an_option_does_not_name_the_file(write):
    message = error_of("QUANTIZE", write('{"scale_method": "maxabs_hw"}'), scale_method="maxabs")
    assert message.startswith("Unknown scale_method 'maxabs'")


def test_unreadable_file_is_rejected(tmp_path, write):
    assert "cannot be read" in error_of("MEASURE", str(tmp_path / "none.json"))
    assert "cannot be read" in error_of("MEASURE", str(tmp_path))
    assert error_of("MEASURE", "~nobody_has_this_name/fp8.json") == (
        "The settings '~nobody_has_this_name/fp8.json' cannot be read: Could not determine home "
        "directory."
    )
    path = write('{"calibration_sample_interval": ' + "1" * 5000 + "}")
    assert f"The settings {path!r} cannot be read: " in error_of("MEASURE", path)


def test_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "fp8.json"
    path.write_text('{"dump_stats_path": "a/b"}', encoding="utf-8-sig")
    assert settings("MEASURE", str(path)).stats == "a/b"


def test_blacklist_is_an_alias_of_blocklist(write):
    path = write('{"blocklist": {"names": ["a"]}, "blacklist": {"names": ["b"], "types": ["C"]}}')
    assert settings("MEASURE", path).values["blocklist"] == {"types": ["C"], "names": ["a", "b"]}
    for name in ("blocklist", "blacklist"):
        values = settings("MEASURE", path, **{name: {"names": ["option"]}}).values
        assert values["blocklist"] == {"types": [], "names": ["option"]}
        assert "blacklist" not in values


def test_options_override_the_file_in_quant_config(write, monkeypatch):
    path = write('{"mode": "MEASURE", "observer": "save", "dump_stats_path": "a/b"}')
    monkeypatch.setenv("QUANT_CONFIG", path)
    config = settings("MEASURE", observer="maxabs", scale_method=None)
    assert (config.source, config.observer, config.stats) == (path, "maxabs", "a/b")
    assert "scale_method" not in config.values
    monkeypatch.delenv("QUANT_CONFIG")
    assert settings("MEASURE").source == ""
    assert settings("MEASURE").stats == STATS


def test_settings_are_normalized_for_neural_compressor(write):
    path = write(
        '{"method": "HOOKS", "mode": "quantize", "whitelist": {"types": ["Linear"]}, '
        '"scale_method": "MAXABS_HW", "dynamic_quantization": "False", "dump_stats_path": "stats"}'
    )
    config = settings("QUANTIZE", path).values
    assert config["allowlist"] == {"types": ["Linear"], "names": []}
    assert config["blocklist"] == {"types": [], "names": []}
    assert config["mode"] == "QUANTIZE"
    assert config["dynamic_quantization"] is False
    assert config["dump_stats_path"] == "./stats"  # Neural Compressor needs a folder
    assert "whitelist" not in config


def test_every_documented_setting_and_value_is_accepted():
    for key, values in CHOICES.items():
        for value in values if key != "mode" else ():
            assert settings("QUANTIZE", **{key: value.swapcase()}).values[key] == value
    assert {"mode", "observer", "allowlist", "blocklist", "dump_stats_path"} < set(KEYS)
    assert {"scale_method", "measure_exclude", "scale_format", "device_for_scales"} < set(KEYS)
    assert {"dynamic_quantization", "scale_params", "fp8_config"} < set(KEYS)
    assert settings("QUANTIZE", scale_params={"input_backoff": 0.25}).values["scale_params"]


def lists(**options):
    return settings("MEASURE", **options).check_lists(MODULES, QUANTIZABLE)


@pytest.mark.parametrize(
    ("which", "entries", "sentence"),
    [
        ("blocklist", {"names": ["haed"]}, "but no module matches it: did you mean 'head'?"),
        ("allowlist", {"names": ["zzz"]}, "but no module matches it: its modules are encoder,"),
        ("blocklist", {"types": ["Linaer"]}, "no module is of this class: did you mean 'Linear'"),
        ("allowlist", {"types": ["Sequential"]}, "cannot be quantized: in this model, Linear can"),
    ],
)
def test_list_without_a_matching_module_is_rejected(which, entries, sentence):
    with pytest.raises(HPUError) as error:
        lists(**{which: entries})
    assert sentence in str(error.value)


def test_lists_select_layers_by_class_and_by_part_of_the_name():
    layers = [("encoder.0", "Linear"), ("head", "Linear"), ("mix", "Matmul")]

    def chosen(**options):
        return [name for name, _ in settings("MEASURE", **options).selected(layers)]

    assert chosen() == ["encoder.0", "head", "mix"]
    assert chosen(blocklist={"types": ["Linear"]}) == ["mix"]
    assert chosen(blocklist={"names": ["enc"]}) == ["head", "mix"]
    assert chosen(allowlist={"names": ["^head$"], "types": ["Matmul"]}) == ["head", "mix"]
    assert chosen(allowlist={"types": ["Linear"]}, blocklist={"names": ["head"]}) == ["encoder.0"]
    lists(blocklist={"types": ["Conv2d"], "names": [r"encoder\.\d"]})  # no Conv2d in the model


CONVOLUTION = [("stem", "Conv2d"), ("head", "Linear")]


@pytest.mark.parametrize(
    ("options", "generation", "sentence"),
    [
        ({"dynamic_quantization": True}, "GAUDI2", "maxabs_hw uses fixed or hardware scales"),
        ({"dynamic_quantization": True, "scale_method": "unit_scale"}, "GAUDI2", "use maxabs_pow"),
        ({"scale_method": "maxabs_pcs_pow2"}, "GAUDI2", "supports only dynamic quantization"),
        ({"device_for_scales": "GAUDI3"}, "GAUDI2", "does not support GAUDI3 scales"),
        (
            {"device_for_scales": "GAUDI2", "scale_method": "maxabs_pow2"},
            *("GAUDI3", "A GAUDI3 does not support GAUDI2 scales with the method maxabs_pow2"),
        ),
        (
            {"scale_method": "act_maxabs_pow2_weights_pcs_opt_pow2"},
            *("GAUDI2", "which the convolution 'stem' does not support: block Conv2d"),
        ),
    ],
)
def test_incompatible_scale_method_is_rejected(options, generation, sentence):
    with pytest.raises(HPUError) as error:
        settings("QUANTIZE", **options).check_method(CONVOLUTION, generation)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("options", "generation"),
    [
        ({}, "GAUDI2"),
        ({"dynamic_quantization": True, "scale_method": "maxabs_pow2"}, "GAUDI2"),
        ({"device_for_scales": "GAUDI2"}, "GAUDI2"),
        ({"device_for_scales": "GAUDI2"}, "GAUDI3"),
        ({"scale_method": "act_maxabs_hw_weights_pcs_maxabs_pow2"}, "GAUDI3"),
    ],
)
def test_compatible_scale_method_is_accepted(options, generation):
    per_channel = "weights_pcs" in options.get("scale_method", "")
    layers = CONVOLUTION[1:] if per_channel else CONVOLUTION
    settings("QUANTIZE", **options).check_method(layers, generation)
