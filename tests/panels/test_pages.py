"""Test pages of a kernel during a fit: the page that started it, and a page loaded later."""

import contextlib
import json
import queue
import time
import uuid
from typing import Any

import ipykernel
import pytest
from jupyter_client.manager import start_new_kernel
from small_fit import TRAINER

FIT = f"""%load_ext hpu_magic{TRAINER}
class Model(Layer):
    def training_step(self, batch, index):
        time.sleep(0.02)
        return super().training_step(batch, index)
data = loader(640)
def trainer(epochs):
    return make_trainer(max_epochs=epochs)
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
STATES = "jupyter.widget.control"


class Page:
    """A client of the kernel: its requests and the messages that it receives."""

    def __init__(self, client):
        self.client = client
        client.start_channels()
        while not self._is_subscribed():
            pass

    def close(self):
        self.client.stop_channels()

    def send(self, kind, **content):
        """Send a message on the shell channel and return its id."""
        # Version of the protocol for requests of widget states.
        message = self.client.session.msg(kind, content, metadata={"version": "1.0.0"})
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def request(self, kind, **content):
        """Send a request on the shell channel and return the reply."""
        sent = self.send(kind, **content)
        while True:
            reply = self.client.get_shell_msg(timeout=100)
            if reply["parent_header"]["msg_id"] == sent:
                return reply["content"]

    def request_control(self, kind, **content):
        """Send a request on the control channel and return the reply."""
        return self._control_reply(kind, **content)["content"]

    def _control_reply(self, kind, **content):
        message = self.client.session.msg(kind, content)
        self.client.control_channel.send(message)
        return self.client.control_channel.get_msg(timeout=100)

    def _is_subscribed(self):
        """Return whether published messages arrive; earlier messages are discarded."""
        request_id = self._control_reply("kernel_info_request")["parent_header"]["msg_id"]
        with contextlib.suppress(queue.Empty):
            while message := self.client.get_iopub_msg(timeout=1):
                if (
                    message["parent_header"].get("msg_id") == request_id
                    and message["content"].get("execution_state") == "idle"
                ):
                    return True
        return False

    def next_message(self, wanted):
        """Return the next published message that meets a condition."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=60)
            if wanted(message):
                return message
        raise TimeoutError

    def state(self):
        """Return the next execution state of the kernel."""
        status = self.next_message(lambda message: message["msg_type"] == "status")
        return str(status["content"]["execution_state"])

    def states(self):
        """Request the states of all widgets, as a page does when it loads."""
        control = uuid.uuid4().hex
        self.send("comm_open", comm_id=control, target_name=STATES, data={})
        self.send_data(control, method="request_states")
        return self.sent_by(control, "states")["states"]

    def run(self, code):
        """Start a cell and return its id."""
        return self.send("execute_request", code=code, silent=False)

    def next_output(self, cell):
        """Return the next output of a cell, ignoring messages from other cells."""

        def wanted(message):
            return displayed(message) and message["parent_header"].get("msg_id") == cell

        return self.next_message(wanted)["content"]

    def last_output(self, cell):
        """Return the first output of a cell that replaces an ended panel."""
        while True:
            output = self.next_output(cell)
            if output["metadata"]["hpu_magic"]["over"]:
                return output

    def send_data(self, comm, **data):
        return self.send("comm_msg", comm_id=comm, data=data)

    def state_of(self, comm):
        """Request the state of a widget, and return it; a page ignores other messages."""
        request = self.send_data(comm, method="request_state")

        def wanted(message):
            return (
                message["msg_type"] == "comm_msg"
                and message["parent_header"].get("msg_id") == request
                and message["content"]["comm_id"] == comm
                and message["content"]["data"]["method"] == "update"
            )

        return self.next_message(wanted)["content"]["data"]["state"]

    def sent_by(self, comm, key):
        """Return the next message of a comm that contains a key."""

        def wanted(message):
            content = message["content"]
            return (
                message["msg_type"] == "comm_msg"
                and content["comm_id"] == comm
                and key in content["data"].get("content", content["data"])
            )

        content = self.next_message(wanted)["content"]["data"]
        return content.get("content", content)


@pytest.fixture(scope="module")
def kernel(forked_kernels):
    with forked_kernels():
        manager, client = start_new_kernel(kernel_name="python3")
    client.execute_interactive(FIT, timeout=120, output_hook=lambda _: None)
    client.stop_channels()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.fixture
def page(kernel):
    opened = []

    def open_page():
        opened.append(Page(kernel.client()))
        return opened[-1]

    yield open_page
    for each in opened:
        each.close()


def displayed(message):
    return message["msg_type"] in ("display_data", "update_display_data")


def test_page_loaded_during_a_fit_shows_the_panel_and_can_stop_it(page):
    first = page()
    first.request("kernel_info_request")
    # The cell still runs after the nested cell has ended.
    code = (
        "get_ipython().run_cell('pass')\nt, m = trainer(500), Model()\n%hpu_fit -o result t m data"
    )
    cell = first.run(code)
    shown = first.next_output(cell)
    assert shown["metadata"]["hpu_magic"]["over"] is False
    assert sorted(shown["data"]) == [WIDGET, "text/html", "text/plain"]

    second = page()
    info = second.request("kernel_info_request")
    assert info["status"] == "ok"
    states = [second.state() for _ in range(3)]
    assert states == ["busy", "idle", "busy"]  # the request has ended, but not the cell
    assert shown["data"][WIDGET]["model_id"] in second.request("comm_info_request")["comms"]

    states = second.states()
    box = states[shown["data"][WIDGET]["model_id"]]["state"]
    names = {name: state["model_name"] for name, state in states.items()}
    children = [child.removeprefix("IPY_MODEL_") for child in box["children"]]
    [document] = [child for child in children if names[child] == "AnyModel"]
    [button] = [name for name, kind in names.items() if kind == "ButtonModel"]

    content = {"wanted": "document", "request": "mine"}
    second.send_data(document, method="custom", content=content)
    answer = second.sent_by(document, "document")
    assert answer["request"] == "mine"
    assert len(answer["document"]["roots"]) == 1
    assert '"in_use"' in json.dumps(answer["document"])
    assert len(second.sent_by(document, "events")["events"]) >= 1

    second.send_data(button, method="custom", content={"event": "click"})
    ended = second.last_output(cell)
    assert "Fit stopped on HPU " in ended["data"]["text/plain"]
    assert WIDGET not in ended["data"]


def test_kernel_sends_single_widget_states_during_a_fit(page):
    first = page()
    first.request("execute_request", code="import ipywidgets\nslider = ipywidgets.IntSlider(7)")
    cell = first.run("t, m = trainer(500), Model()\n%hpu_fit t m data")
    first.next_output(cell)
    second = page()
    comms = second.request("comm_info_request", target_name="jupyter.widget")["comms"]
    states = {}
    for comm in comms:
        states[comm] = second.state_of(comm)
    assert 7 in [state.get("value") for state in states.values()], "a widget of another cell"
    [stop] = [comm for comm, state in states.items() if state.get("description") == "Stop"]
    second.send_data(stop, method="custom", content={"event": "click"})
    second.last_output(cell)


def test_panel_shows_a_stop_from_another_place_before_the_batch_ends(page, kernel):
    first = page()
    first.request("kernel_info_request")
    slow = "class Slow(Model):\n    def training_step(self, *batch):\n        time.sleep(4)\n"
    slow += "        return super().training_step(*batch)\n"
    cell = first.run(f"{slow}t, m = trainer(500), Slow()\n%hpu_fit -o result t m data")
    shown = first.next_output(cell)
    states = first.states()
    assert shown["data"][WIDGET]["model_id"] in states
    names = {name: state["model_name"] for name, state in states.items()}
    [button] = [name for name, kind in names.items() if kind == "ButtonModel"]

    def fit():
        # The panel appears before the fit is published.
        return first.request_control("hpu_magic_status_request")["fit"] or {"phase": "starting"}

    while fit()["phase"] != "training":
        time.sleep(0.1)
    pid = kernel.provisioner.pid
    assert first.request_control("hpu_magic_stop_request", pid=pid) == {"status": "ok"}
    assert fit()["phase"] == "stopping"
    state: dict[str, Any] = {}
    while state.get("disabled") is not True:
        state |= first.sent_by(button, "state")["state"]
    assert state["description"] == "Stopping"
    assert fit()["phase"] == "stopping"  # the batch has not ended yet
    ended = first.last_output(cell)
    assert "Fit stopped on HPU " in ended["data"]["text/plain"]


@pytest.mark.skipif(ipykernel.version_info < (7,), reason="only the training next_message there")
def test_memory_panel_can_be_stopped_while_another_cell_runs(page, kernel):
    first = page()
    cell = first.run("t, m = trainer(1), Model()\n%hpu_memory_live\n%hpu_fit t m data")
    panel = first.next_output(cell)
    first.last_output(cell)
    first.run("print('asleep')\ntime.sleep(60)")
    first.next_message(lambda message: message["content"].get("text") == "asleep\n")
    second = page()
    second.request("kernel_info_request")
    [button] = [
        name
        for name, one in second.states().items()
        if one["model_name"] == "ButtonModel" and not one["state"].get("disabled")
    ]
    second.send_data(button, method="custom", content={"event": "click"})
    ended = second.next_message(displayed)["content"]["metadata"]["hpu_magic"]
    assert ended["output"] == panel["metadata"]["hpu_magic"]["output"]
    assert ended["over"]
    kernel.interrupt_kernel()
    first.next_message(lambda message: message["msg_type"] == "error")
    time.sleep(0.5)  # after an error, the kernel aborts cells for a moment


def test_kernel_returns_current_outputs_to_a_page_that_missed_updates(page):
    first = page()
    cell = first.run("t, m = trainer(3), Model()\n%hpu_fit t m data")
    names = [first.next_output(cell)["metadata"]["hpu_magic"]["output"] for _ in range(2)]
    first.next_output(cell)
    known = {names[0]: 1, names[1]: 1, "another": 3}
    current = first.request_control("hpu_magic_outputs_request", outputs=known)
    assert list(current["outputs"]) == names[1:]
    assert current["unknown"] == ["another"]
    over = [output["metadata"]["hpu_magic"]["over"] for output in current["outputs"].values()]
    assert over == [False]
    while first.last_output(cell)["metadata"]["hpu_magic"]["output"] != names[1]:
        pass
    ended = first.request_control("hpu_magic_outputs_request", outputs=known)
    table, picture = ended["outputs"].values()
    assert sorted(table["data"]) == ["text/html", "text/plain"]
    assert "Fit finished on HPU " in table["data"]["text/html"]
    assert picture["data"]["image/svg+xml"].startswith("<svg")
    assert table["metadata"]["hpu_magic"]["over"]
    assert first.request_control("hpu_magic_outputs_request", outputs="all") == {
        "status": "ok",
        "outputs": {},
        "unknown": [],
    }


@pytest.mark.parametrize("panel", ["auto", "picture"])
def test_picture_replaces_the_panel_in_pages_without_widgets(page, panel):
    first = page()
    cell = first.run(
        f"%config HPUMagics.panel = {panel!r}\nt, m = trainer(5), Model()\n%hpu_fit t m data"
    )
    top, picture = (first.next_output(cell) for _ in range(2))
    assert (WIDGET in top["data"]) == (panel == "auto")
    assert "HPU sidebar" in top["data"]["text/plain"]
    moving = []
    while not (content := first.next_output(cell))["metadata"]["hpu_magic"]["over"]:
        assert (
            content["metadata"]["hpu_magic"]["output"] == picture["metadata"]["hpu_magic"]["output"]
        )
        moving.append(content["data"])
    assert len(moving) >= 2
    assert "Training</b> Model, epoch" in moving[-1]["text/html"]
    assert moving[-1]["image/svg+xml"] in moving[-1]["text/html"]
    assert moving[-1]["text/plain"].startswith("Training Model: epoch")
