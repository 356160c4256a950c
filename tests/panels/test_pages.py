"""Pages of a kernel that is busy with a fit: the one that began it, and one that is loaded then."""

from __future__ import annotations

import contextlib
import json
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import ipykernel
import pytest
from jupyter_client.manager import start_new_kernel

FIT = """%load_ext hpu_magic
import time, torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        time.sleep(0.02)
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(640, 8)), 16)
def trainer(epochs):
    return pl.Trainer(accelerator="hpu", devices=1, max_epochs=epochs, logger=False,
                      enable_checkpointing=False, enable_model_summary=False)
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
STATES = "jupyter.widget.control"


class Page:
    """A page of the kernel: what it asks, and all that it hears."""

    def __init__(self, client: Any) -> None:
        self.client = client
        client.start_channels()
        while not self._is_subscribed():
            pass

    def close(self) -> None:
        self.client.stop_channels()

    def send(self, kind: str, **content: Any) -> str:
        """Send a message on the shell channel and return its id."""
        # The version is that of the protocol by which widgets' states are asked for.
        message = self.client.session.msg(kind, content, metadata={"version": "1.0.0"})
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def ask(self, kind: str, **content: Any) -> Any:
        """Return the answer on the shell channel."""
        sent = self.send(kind, **content)
        while True:
            reply = self.client.get_shell_msg(timeout=100)
            if reply["parent_header"]["msg_id"] == sent:
                return reply["content"]

    def ask_control(self, kind: str, **content: Any) -> Any:
        """Return the answer on the control channel."""
        return self._ask_control(kind, **content)["content"]

    def _ask_control(self, kind: str, **content: Any) -> Any:
        message = self.client.session.msg(kind, content)
        self.client.control_channel.send(message)
        return self.client.control_channel.get_msg(timeout=100)

    def _is_subscribed(self) -> bool:
        """Tell whether what is published comes here; what was published before that is lost."""
        asked = self._ask_control("kernel_info_request")["parent_header"]["msg_id"]
        with contextlib.suppress(queue.Empty):
            while message := self.client.get_iopub_msg(timeout=1):
                if (
                    message["parent_header"].get("msg_id") == asked
                    and message["content"].get("execution_state") == "idle"
                ):
                    return True
        return False

    def hears(self, wanted: Callable[[Any], bool]) -> Any:
        """Return the next published message that is wanted."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=60)
            if wanted(message):
                return message
        raise TimeoutError

    def state(self) -> str:
        """Return what the kernel says next that it does."""
        heard = self.hears(lambda message: message["msg_type"] == "status")
        return str(heard["content"]["execution_state"])

    def states(self) -> Any:
        """Ask for the states of all widgets, as a page does that is loaded."""
        control = uuid.uuid4().hex
        self.send("comm_open", comm_id=control, target_name=STATES, data={})
        self.say(control, method="request_states")
        return self.told(control, "states")["states"]

    def run(self, code: str) -> str:
        """Begin a cell and return its id."""
        return self.send("execute_request", code=code, silent=False)

    def shows(self, cell: str) -> Any:
        """Return what the cell shows next; cells of others may still end."""

        def wanted(message: Any) -> bool:
            return displayed(message) and message["parent_header"].get("msg_id") == cell

        return self.hears(wanted)["content"]

    def say(self, comm: str, **data: Any) -> str:
        return self.send("comm_msg", comm_id=comm, data=data)

    def told(self, comm: str, key: str) -> Any:
        """Return what the kernel says over a comm under a key."""

        def wanted(message: Any) -> bool:
            content = message["content"]
            return (
                message["msg_type"] == "comm_msg"
                and content["comm_id"] == comm
                and key in content["data"].get("content", content["data"])
            )

        content = self.hears(wanted)["content"]["data"]
        return content.get("content", content)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    manager, client = start_new_kernel(kernel_name="python3")
    client.execute_interactive(FIT, timeout=120, output_hook=lambda _: None)
    client.stop_channels()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.fixture
def page(kernel: Any) -> Iterator[Callable[[], Page]]:
    opened = []

    def open_page() -> Page:
        opened.append(Page(kernel.client()))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


def displayed(message: Any) -> bool:
    return message["msg_type"] in ("display_data", "update_display_data")


def test_a_page_that_is_loaded_in_mid_fit_has_the_panel_and_its_stop(page):
    first = page()
    first.ask("kernel_info_request")
    # A cell that calls another one still runs when that one has ended.
    code = (
        "get_ipython().run_cell('pass')\nt, m = trainer(500), Model()\n%hpu_fit -o result t m data"
    )
    cell = first.run(code)
    shown = first.shows(cell)
    assert shown["metadata"]["hpu_magic"]["over"] is False
    assert sorted(shown["data"]) == [WIDGET, "text/html", "text/plain"]

    second = page()
    info = second.ask("kernel_info_request")
    assert info["status"] == "ok"
    states = [second.state() for _ in range(3)]
    assert states == ["busy", "idle", "busy"]  # done with the question, not with the cell
    assert shown["data"][WIDGET]["model_id"] in second.ask("comm_info_request")["comms"]

    states = second.states()
    box = states[shown["data"][WIDGET]["model_id"]]["state"]
    names = {name: one["model_name"] for name, one in states.items()}
    children = [child.removeprefix("IPY_MODEL_") for child in box["children"]]
    [document] = [child for child in children if names[child] == "AnyModel"]
    [button] = [name for name, kind in names.items() if kind == "ButtonModel"]

    asked = {"wanted": "document", "request": "mine"}
    second.say(document, method="custom", content=asked)
    answer = second.told(document, "document")
    assert answer["request"] == "mine"
    assert len(answer["document"]["roots"]) == 1
    assert '"in_use"' in json.dumps(answer["document"])
    assert len(second.told(document, "events")["events"]) >= 1

    second.say(button, method="custom", content={"event": "click"})
    ended = second.shows(cell)
    while not ended["metadata"]["hpu_magic"]["over"]:
        ended = second.shows(cell)
    assert "Fit stopped on HPU " in ended["data"]["text/plain"]
    assert WIDGET not in ended["data"]


def test_a_page_that_asks_each_widget_for_its_state_is_answered_in_mid_fit(page):
    first = page()
    first.ask("execute_request", code="import ipywidgets\nslider = ipywidgets.IntSlider(7)")
    cell = first.run("t, m = trainer(500), Model()\n%hpu_fit t m data")
    first.shows(cell)
    second = page()
    comms = second.ask("comm_info_request", target_name="jupyter.widget")["comms"]
    states = {}
    for comm in comms:
        second.say(comm, method="request_state")
        states[comm] = second.told(comm, "state")["state"]
        while "_model_name" not in states[comm]:  # an update that came before the answer
            states[comm] = second.told(comm, "state")["state"]
    assert 7 in [state.get("value") for state in states.values()], "a widget of another cell"
    [stop] = [comm for comm, state in states.items() if state.get("description") == "Stop"]
    second.say(stop, method="custom", content={"event": "click"})
    while not second.shows(cell)["metadata"]["hpu_magic"]["over"]:
        pass


def test_a_panel_whose_fit_is_stopped_elsewhere_says_so_before_the_batch_has_ended(page, kernel):
    first = page()
    first.ask("kernel_info_request")
    slow = "class Slow(Model):\n    def training_step(self, *batch):\n        time.sleep(4)\n"
    slow += "        return super().training_step(*batch)\n"
    cell = first.run(f"{slow}t, m = trainer(500), Slow()\n%hpu_fit -o result t m data")
    shown = first.shows(cell)
    states = first.states()
    assert shown["data"][WIDGET]["model_id"] in states
    names = {name: one["model_name"] for name, one in states.items()}
    [button] = [name for name, kind in names.items() if kind == "ButtonModel"]

    def fit() -> Any:
        # The panel is shown before the fit is known to other processes.
        return first.ask_control("hpu_magic_status_request")["fit"] or {"phase": "starting"}

    while fit()["phase"] != "training":
        time.sleep(0.1)
    pid = kernel.provisioner.pid
    assert first.ask_control("hpu_magic_stop_request", pid=pid) == {"status": "ok"}
    assert fit()["phase"] == "stopping"
    said: dict[str, Any] = {}
    while said.get("disabled") is not True:
        said |= first.told(button, "state")["state"]
    assert said["description"] == "Stopping"
    assert fit()["phase"] == "stopping"  # that is, it has not ended yet
    ended = first.shows(cell)
    while not ended["metadata"]["hpu_magic"]["over"]:
        ended = first.shows(cell)
    assert "Fit stopped on HPU " in ended["data"]["text/plain"]


@pytest.mark.skipif(ipykernel.version_info < (7,), reason="only the training hears there")
def test_a_panel_that_outlives_a_fit_is_heard_while_another_cell_runs(page, kernel):
    first = page()
    cell = first.run("t, m = trainer(1), Model()\n%hpu_memory_live\n%hpu_fit t m data")
    panel = first.shows(cell)
    while not first.shows(cell)["metadata"]["hpu_magic"]["over"]:
        pass
    first.run("print('asleep')\ntime.sleep(60)")
    first.hears(lambda message: message["content"].get("text") == "asleep\n")
    second = page()
    second.ask("kernel_info_request")
    [button] = [
        name
        for name, one in second.states().items()
        if one["model_name"] == "ButtonModel" and not one["state"].get("disabled")
    ]
    second.say(button, method="custom", content={"event": "click"})
    ended = second.hears(displayed)["content"]["metadata"]["hpu_magic"]
    assert ended["output"] == panel["metadata"]["hpu_magic"]["output"]
    assert ended["over"]
    kernel.interrupt_kernel()
    first.hears(lambda message: message["msg_type"] == "error")
    time.sleep(0.5)  # until the kernel takes cells again after an error


def test_the_kernel_tells_what_stands_in_an_output_to_who_missed_it(page):
    first = page()
    cell = first.run("t, m = trainer(3), Model()\n%hpu_fit t m data")
    names = [first.shows(cell)["metadata"]["hpu_magic"]["output"] for _ in range(2)]
    first.shows(cell)
    known = {names[0]: 1, names[1]: 1, "another": 3}
    meanwhile = first.ask_control("hpu_magic_outputs_request", outputs=known)
    assert list(meanwhile["outputs"]) == names[1:]
    assert meanwhile["unknown"] == ["another"]
    over = [one["metadata"]["hpu_magic"]["over"] for one in meanwhile["outputs"].values()]
    assert over == [False]
    while (told := first.shows(cell)["metadata"]["hpu_magic"])["output"] != names[1] or not told[
        "over"
    ]:
        pass
    ended = first.ask_control("hpu_magic_outputs_request", outputs=known)
    table, picture = ended["outputs"].values()
    assert sorted(table["data"]) == ["text/html", "text/plain"]
    assert "Fit finished on HPU " in table["data"]["text/html"]
    assert picture["data"]["image/svg+xml"].startswith("<svg")
    assert table["metadata"]["hpu_magic"]["over"]
    assert first.ask_control("hpu_magic_outputs_request", outputs="all") == {
        "status": "ok",
        "outputs": {},
        "unknown": [],
    }


@pytest.mark.parametrize("panel", ["auto", "picture"])
def test_where_nobody_draws_widgets_the_picture_is_the_panel(page, panel):
    first = page()
    cell = first.run(
        f"%config HPUMagics.panel = {panel!r}\nt, m = trainer(5), Model()\n%hpu_fit t m data"
    )
    top, picture = (first.shows(cell) for _ in range(2))
    assert (WIDGET in top["data"]) == (panel == "auto")
    assert "HPU sidebar" in top["data"]["text/plain"]
    moving = []
    while not (content := first.shows(cell))["metadata"]["hpu_magic"]["over"]:
        assert (
            content["metadata"]["hpu_magic"]["output"] == picture["metadata"]["hpu_magic"]["output"]
        )
        moving.append(content["data"])
    assert len(moving) >= 2
    assert "Training</b> Model, epoch" in moving[-1]["text/html"]
    assert moving[-1]["image/svg+xml"] in moving[-1]["text/html"]
    assert moving[-1]["text/plain"].startswith("Training Model: epoch")
