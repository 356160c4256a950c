"""A program with the options, the endpoints and the metrics of ``vllm serve``, for tests.

It holds a card in a child process, like vLLM, and generates 10 tokens per request to /generate. The
child of real vLLM may survive a server that is killed; with --survive, the child of this program
always does.
"""

import argparse
import http.server
import json
import os
import shutil
import subprocess
import sys

HOLD = """
import sys, torch
import habana_frameworks.torch
memory = torch.ones(1 << 20, device="hpu")
print("holding", flush=True)
sys.stdin.read()
if "--survive" in sys.argv:
    import time
    time.sleep(600)
"""
METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} 1.0
vllm:num_requests_running{{engine="1"}} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0"}} 4.0
# TYPE vllm:request_success counter
vllm:request_success_total{{finished_reason="stop"}} {requests}
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total {tokens}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {requests}
vllm:time_to_first_token_seconds_sum {waited}
vllm:time_to_first_token_seconds_count {requests}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc 0.25
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total {queries}
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total {hits}
"""


def install(site):
    """Install this program as vLLM with its plugin in the folder `site`."""
    folder = site / "vllm" / "entrypoints" / "cli"
    folder.mkdir(parents=True)
    for package in (site / "vllm_gaudi", site / "vllm", folder.parent, folder):
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
    shutil.copy(__file__, folder / "main.py")


def answer(body):
    """Return the completion of a request to the OpenAI-compatible API, which repeats the prompt."""
    messages = body.get("messages")
    text = messages[-1]["content"] if messages else body["prompt"]
    choice = {"message": {"role": "assistant", "content": text}} if messages else {"text": text}
    return {"choices": [choice], "usage": {"completion_tokens": body.get("max_tokens", 16)}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tensor-parallel-size", type=int)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--survive", action="store_true")
    options, _ = parser.parse_known_args()
    if options.silent:
        sys.exit(4)
    print("INFO loading", os.environ["HABANA_VISIBLE_MODULES"], flush=True)
    if options.fail:
        print("WARNING limits can cause errors like `OSError: too many files`", flush=True)
        print("(EngineCore) ERROR 11-24 [core.py:1]     raise ValueError(text)", flush=True)
        print("(EngineCore) ValueError: the model has no config", flush=True)
        print("RuntimeError: Engine core initialization failed.", file=sys.stderr, flush=True)
        sys.exit(3)
    engine = subprocess.Popen(
        ["VLLM::EngineCore", "-c", HOLD, *sys.argv[1:]],
        executable=sys.executable,
        # A process with this name does not find its virtual environment.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert engine.stdout.readline() == b"holding\n"
    if options.hang:
        engine.wait()
    print("(EngineCore pid=1) INFO [runner.py:1] Warmup finished in 12 secs, allocated 4 KiB")
    requests = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            nonlocal requests
            requests += self.path == "/generate"
            values = {"requests": requests, "tokens": 10 * requests, "waited": 0.5 * requests}
            text = METRICS.format(**values, queries=8 * requests, hits=2 * requests)
            if self.path == "/generate":
                shape = ("decode", requests, 1, 1)
                print(f"(EngineCore pid=1) WARNING Configuration: {shape} was not warmed-up!")
                print("(EngineCore pid=1) ERROR ValueError: a request has no prompt", flush=True)
            found = self.path in ("/health", "/generate", "/metrics")
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(text.encode() if self.path == "/metrics" else b"")

        def do_POST(self):
            nonlocal requests
            requests += 1
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer(body)).encode())

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
