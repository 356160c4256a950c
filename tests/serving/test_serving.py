"""Test ``%hpu_serve``, with a program that has vLLM's options, endpoints and metrics."""

import math

from hpu_magic.panels import rate_chart
from hpu_magic.serving import metrics
from hpu_magic.serving.log import Preparation, ServerLog

HOLDERS = "from hpu_magic import monitor; print([len(c.holders) for c in monitor.snapshot().cards])"
GENERATE = """
import time, urllib.request
for _ in range(3):
    urllib.request.urlopen(report.url.replace("/v1", "/generate")).read()
    time.sleep(0.1)
"""


def test_server_starts_reports_and_stops(shell):
    out = shell(
        "%hpu_serve tiny --port 0 -o report",
        HOLDERS,
        GENERATE,
        "report = %hpu_serve",
        "print(report.running, report.waiting, report.finished, report.cards, report.model)",
        "print(report.tokens_per_second > 0, report.time_to_first_token, report.cache_usage)",
        "print(report.prefix_hit_rate, report.to_dict()['model'])",
        "print(report)",
        "%hpu_serve off",
        HOLDERS,
        "%hpu_serve",
    )
    assert "tiny is ready at http://127.0.0.1:" in out
    assert "[1, 0]" in out
    assert "3 4 3 [0] tiny" in out
    assert "True 0.5 0.25" in out
    assert "0.25 tiny" in out
    assert "3 running, 4 waiting, 3 finished" in out
    assert "after 500 ms" in out
    assert "warm-up      12 s" in out
    assert "new shapes   3 since the warm-up" in out
    assert "[0, 0]" in out
    assert out.count("No server is running.") == 2


def test_server_uses_several_cards_and_further_options(shell):
    out = shell(
        "report = %hpu_serve tiny --cards 2 --port 0 --tensor-parallel-size 2",
        "report = %hpu_serve tiny --cards 3 --port 0",
        "report = %hpu_serve tiny --cards 2 --port 0",
        "print(report.cards)",
        "%hpu_serve other --port 0",
        "%hpu_serve --fail tiny",
        "%hpu_serve off",
        "%hpu_serve other --port 0 --tensor_parallel_size=2",
    )
    assert "--tensor-parallel-size cannot be passed to vLLM: pass --cards N." in out
    assert "--tensor_parallel_size cannot be passed to vLLM: pass --cards N." in out
    assert "3 servers need 3 cards, but there are only 2: pass --cards 2." in out
    assert "[0, 1]" in out
    assert "tiny is already being served at http://127.0.0.1:" in out
    assert "The model must come first: type %hpu_serve MODEL --fail" in out


def test_values_that_the_server_does_not_report_are_unknown():
    sample = metrics.parse("# TYPE vllm:num_requests_running gauge\n", 1.0)
    assert math.isnan(sample.running)
    assert math.isnan(sample.prefix_hit_rate)
    assert math.isnan(metrics.tokens_per_second(sample, sample))
    assert math.isnan(metrics.time_to_first_token(None, sample))


def test_time_to_first_token_covers_the_newest_requests():
    text = "vllm:time_to_first_token_seconds_sum {}\nvllm:time_to_first_token_seconds_count {}\n"
    first, second = metrics.parse(text.format(2.0, 2), 0), metrics.parse(text.format(3.0, 4), 1)
    assert metrics.time_to_first_token(first, second) == 0.5
    assert metrics.time_to_first_token(second, second) == 0.75
    assert metrics.time_to_first_token(None, first) == 1.0


def test_log_has_new_shapes_and_the_longest_warmup():
    log = ServerLog()
    assert log.preparation == Preparation()
    assert log.error(ready=False) == log.last_line == ""
    for rank, seconds in enumerate((7, 9)):
        log.add(f"(Worker_TP{rank} pid=2) INFO Warmup finished in {seconds} secs, allocated 1 GiB")
        log.add(f"(Worker_TP{rank}) WARNING Configuration: ('decode', 1, 1, 1) was not warmed-up!")
    assert log.preparation == Preparation(warmup=9, new_shapes=1)
    log.add("(EngineCore) INFO Skipping warmup...")
    assert log.preparation.skipped
    assert log.last_line == "(EngineCore) INFO Skipping warmup..."
    assert log.error(ready=True) == ""


def test_old_errors_are_not_the_cause_of_an_end():
    log = ServerLog()
    log.add("ERROR ValueError: a request has no prompt")
    for number in range(200):
        log.add(f"INFO line {number}")
    assert log.error(ready=False) == "ValueError: a request has no prompt"
    assert log.error(ready=True) == ""


def test_chart_has_the_text_color_of_the_page():
    chart = rate_chart.draw("Tokens", [(0.0, 1.0), (1.0, math.nan), (2.0, 3.0)], 60.0)
    assert chart.count("<text") == chart.count('fill="currentColor"') > 0
