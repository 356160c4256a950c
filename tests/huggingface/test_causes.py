"""What is said below errors of the Hugging Face libraries, in a shell."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hpu_magic.simulator import activate, cards

activate(announce=False)  # before a library asks PyTorch which accelerator there is
pytest.importorskip("transformers")

from features import TRANSFORMERS, proves  # noqa: E402
from tiny_models import llama  # noqa: E402

REFUSALS = {
    "gated": (403, "GatedRepo"),
    "missing": (401, "RepoNotFound"),
    "revision": (404, "RevisionNotFound"),
    "file": (404, "EntryNotFound"),
}
"""What the hub answers, by the name of the repository: status, and the reason in a header."""


class Hub(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        status, reason = REFUSALS[self.path.split("/")[2]]
        self.send_response(status)
        self.send_header("X-Error-Code", reason)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep the output to what the shell prints."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def said(run: Callable[[str], Any]) -> Callable[[str], str]:
    """Run a cell that fails, and return what stands below its traceback."""

    def below(source: str) -> str:
        cell = run(source)
        assert cell.error is not None
        assert "Traceback" in cell.out
        return cell.err.strip()

    return below


@pytest.fixture
def download(
    said: Callable[[str], str], shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Callable[[str, str], str]:
    """Ask a hub for a file that cannot be had, and return what is said of it."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)

    def ask(endpoint: str, repository: str) -> str:
        shell.user_ns.update(where=endpoint, folder=tmp_path, hub=huggingface_hub)
        return said(
            f"hub.hf_hub_download('{repository}', 'x.bin', endpoint=where, cache_dir=folder)"
        )

    return ask


@proves(TRANSFORMERS, "gated, missing or unreachable downloads")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("owner/gated", "The download is gated: accept the conditions on its page on the Hub, "),
        (
            "owner/missing",
            "The Hub has no repository with this name, or it is private: write owner",
        ),
        ("owner/revision", "The repository does not have this revision: remove revision, or pass "),
        ("owner/file", "The repository exists but does not have this file: check the files on "),
        ("./no/folder", "This is neither a local folder nor a name on the Hub: correct the path, "),
    ],
)
def test_a_download_that_is_refused_is_told_as_what_it_is(
    download: Callable[[str, str], str], hub: str, name: str, sentence: str
) -> None:
    told = download(hub, name)
    assert told.startswith(sentence)
    assert "\n" not in told


def test_a_hub_out_of_reach_is_told(
    download: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from huggingface_hub.utils import _http

    # It asks again after seconds, which grow.
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    with socket.socket() as taken:  # and listens not
        taken.bind(("127.0.0.1", 0))
        told = download(f"http://127.0.0.1:{taken.getsockname()[1]}", "owner/model")
    assert told.splitlines()[-1] == (
        "The Hub could not be reached: check the network and its proxy (HTTPS_PROXY), set "
        "HF_ENDPOINT to a mirror, or pass the path of a folder with the files."
    )


@pytest.mark.parametrize(
    "source",
    [
        "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('owner/model')",
        "from huggingface_hub import HfApi\nHfApi().model_info('owner/model')",
    ],
    ids=["files", "questions"],
)
def test_a_process_that_downloads_nothing_says_so(said: Callable[[str], str], source: str) -> None:
    assert said(source).startswith("Downloads are disabled (HF_HUB_OFFLINE=1 or local_files")


@proves(TRANSFORMERS, "`device_map` that names a second card")
def test_a_second_card_is_told_as_one(
    said: Callable[[str], str], shell: Any, tmp_path: Any
) -> None:
    llama().save_pretrained(tmp_path)
    shell.user_ns["folder"] = tmp_path
    # Before a card is acquired, an index would choose one.
    other = 2 if cards.acquire().module_id == 1 else 1
    for places in (f"hpu:{other}", {"model": 0, "lm_head": other}):
        told = said(
            "from transformers import AutoModelForCausalLM\n"
            f"AutoModelForCausalLM.from_pretrained(folder, device_map={places!r})"
        )
        assert told.splitlines()[-1].startswith(
            "A process has one card, hpu:0, and device_map contains another: write device_map="
        )
    # Whoever writes it himself knows that there is no device map.
    assert "device_map" not in said(f"import torch\ntorch.ones(1, device='hpu:{other}')")


@pytest.fixture
def on_meta(shell: Any) -> None:
    import torch

    with torch.device("meta"):
        shell.user_ns["model"] = llama()
    shell.user_ns["torch"] = torch


@proves(TRANSFORMERS, 'a model on `meta`, moved by `.to("hpu")`')
@pytest.mark.parametrize(
    "source", ["model.to('hpu')", "model.generate(torch.ones(1, 4, dtype=torch.long))"]
)
def test_weights_without_values_are_told(
    said: Callable[[str], str], on_meta: None, source: str
) -> None:
    assert said(source).splitlines()[-1].startswith("The model is on the meta device, so")


def test_what_refuses_says_itself_what_to_do(run: Callable[[str], Any], on_meta: None) -> None:
    cell = run("%hpu_to model")
    assert str(cell.error) == (
        "model.model.embed_tokens.weight is on the meta device and has no data: load the model by "
        "from_pretrained, or fill it with to_empty(device='cpu') and load_state_dict()."
    )
    assert "The model is on the meta" not in cell.err


def test_a_model_that_is_spread_stays_where_it_is(
    run: Callable[[str], Any], shell: Any, tmp_path: Any
) -> None:
    llama().save_pretrained(tmp_path)
    from transformers import AutoModelForCausalLM

    memory = {0: "60KB", "cpu": "1GB"}
    model = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="auto", max_memory=memory)
    shell.user_ns["model"] = model
    before = [weight.device for weight in model.parameters()]
    cell = run("%hpu_to model")
    assert str(cell.error) == (
        "model is distributed by its device_map, and its parts on the cpu or a disk move to the "
        "card when they are used: use it as it is, or load it with device_map='hpu'."
    )
    assert [weight.device for weight in model.parameters()] == before


def test_an_error_of_another_kind_has_no_sentence(said: Callable[[str], str]) -> None:
    assert said("from transformers import NoSuchModel") == ""
    assert said("raise FileNotFoundError('owner/model')") == ""
