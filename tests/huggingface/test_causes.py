"""Test explanations below errors of Hugging Face's libraries, in a shell."""

import http.server
import threading

import pytest

pytest.importorskip("transformers")

from features import TRANSFORMERS, proves
from tiny_models import llama

from hpu_magic.simulator import cards

REFUSALS = {
    "gated": (403, "GatedRepo"),
    "missing": (401, "RepoNotFound"),
    "revision": (404, "RevisionNotFound"),
    "file": (404, "EntryNotFound"),
}
"""The hub's status and error code for each repository."""


class Hub(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        status, reason = REFUSALS[self.path.split("/")[2]]
        self.send_response(status)
        self.send_header("X-Error-Code", reason)
        self.end_headers()

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def hub():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def explanation(run):
    """A function that runs a failing cell and returns the explanation below its traceback."""

    def run_cell(source):
        cell = run(source)
        assert cell.error is not None
        assert "Traceback" in cell.out
        return cell.err.strip()

    return run_cell


@pytest.fixture
def download(explanation, shell, monkeypatch, tmp_path):
    """A function that requests an unavailable file from a hub and returns the explanation."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)

    def request(endpoint, repository):
        shell.user_ns.update(where=endpoint, folder=tmp_path, hub=huggingface_hub)
        return explanation(
            f"hub.hf_hub_download('{repository}', 'x.bin', endpoint=where, cache_dir=folder)"
        )

    return request


@proves(TRANSFORMERS, "gated, missing or unreachable downloads")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("owner/gated", "This repository is gated: accept its conditions on the Hub, log in with "),
        (
            "owner/missing",
            "The Hub has no repository with this name, or it is private: use owner",
        ),
        ("owner/revision", "The repository does not have this revision: omit revision, or pass "),
        ("owner/file", "The repository exists but does not have this file: check the list of "),
        (
            "./no/folder",
            "This is neither a local folder nor a repository name on the Hub: ",
        ),
    ],
)
def test_refused_download_is_explained(download, hub, name, sentence):
    text = download(hub, name)
    assert text.startswith(sentence)
    assert "\n" not in text


def test_unreachable_hub_is_explained(download, monkeypatch):
    import socket

    from huggingface_hub.utils import _http

    # The library waits between retries.
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    with socket.socket() as taken:  # and listens not
        taken.bind(("127.0.0.1", 0))
        told = download(f"http://127.0.0.1:{taken.getsockname()[1]}", "owner/model")
    assert told.splitlines()[-1] == (
        "Could not reach the Hub: check your network connection and proxy settings (HTTPS_PROXY), "
        "set HF_ENDPOINT to a mirror, or pass the path to a local folder that contains the files."
    )


@pytest.mark.parametrize(
    "source",
    [
        "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('owner/model')",
        "from huggingface_hub import HfApi\nHfApi().model_info('owner/model')",
    ],
    ids=["files", "information"],
)
def test_disabled_downloads_are_explained(explanation, source):
    assert explanation(source).startswith("Downloads are disabled (HF_HUB_OFFLINE=1 or local_files")


@proves(TRANSFORMERS, "`device_map` that names a second card")
def test_second_card_in_a_device_map_is_explained(explanation, shell, tmp_path):
    llama().save_pretrained(tmp_path)
    shell.user_ns["folder"] = tmp_path
    # Before the process acquires a card, an index would select one.
    other = 2 if cards.acquire().module_id == 1 else 1
    for places in (f"hpu:{other}", {"model": 0, "lm_head": other}):
        text = explanation(
            "from transformers import AutoModelForCausalLM\n"
            f"AutoModelForCausalLM.from_pretrained(folder, device_map={places!r})"
        )
        assert text.splitlines()[-1].startswith(
            "A process has only one card, hpu:0, but device_map contains another: use device_map="
        )
    # The explanation of code without a device map does not mention `device_map`.
    assert "device_map" not in explanation(f"import torch\ntorch.ones(1, device='hpu:{other}')")


@pytest.fixture
def on_meta(shell):
    import torch

    with torch.device("meta"):
        shell.user_ns["model"] = llama()
    shell.user_ns["torch"] = torch


@proves(TRANSFORMERS, 'a model on `meta`, moved by `.to("hpu")`')
@pytest.mark.parametrize(
    "source", ["model.to('hpu')", "model.generate(torch.ones(1, 4, dtype=torch.long))"]
)
def test_weights_without_data_are_explained(explanation, on_meta, source):
    assert explanation(source).splitlines()[-1].startswith("The model is on the meta device, so")


def test_hpu_to_explains_weights_without_data(run, on_meta):
    cell = run("%hpu_to model")
    assert str(cell.error) == (
        "model.model.embed_tokens.weight is on the meta device and has no data: load the model "
        "with from_pretrained(), or fill it with to_empty(device='cpu') and load_state_dict()."
    )
    assert "The model is on the meta" not in cell.err


def test_distributed_model_is_not_moved(run, shell, tmp_path):
    llama().save_pretrained(tmp_path)
    from transformers import AutoModelForCausalLM

    memory = {0: "60KB", "cpu": "1GB"}
    model = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="auto", max_memory=memory)
    shell.user_ns["model"] = model
    before = [weight.device for weight in model.parameters()]
    cell = run("%hpu_to model")
    assert str(cell.error) == (
        "model is distributed by its device_map, and its parts on the CPU or on disk are moved to "
        "the card when they are used: use it as is, or load it with device_map='hpu'."
    )
    assert [weight.device for weight in model.parameters()] == before


def test_other_errors_get_no_explanation(explanation):
    assert explanation("from transformers import NoSuchModel") == ""
    assert explanation("raise FileNotFoundError('owner/model')") == ""
