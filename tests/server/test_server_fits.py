"""Test fits of kernels that hold cards: who may see them, and who may stop them."""

import asyncio
import json
import time

import pytest
from conftest import ACQUIRE, Notebook
from jupyter_client.manager import AsyncKernelManager
from small_fit import TRAINER
from started_process import wait_for

from hpu_magic.server import control

LOAD = f"""%load_ext hpu_magic{TRAINER}
class DigitReader(Layer):
    def training_step(self, batch, index):
        time.sleep(0.01)
        return super().training_step(batch, index) * factor
data, factor, accelerator = loader(), 1.0, "hpu"
def trainer():
    return make_trainer(accelerator=accelerator, max_epochs=100_000)
"""
FIT = "coach, model = trainer(), DigitReader()\nresult = %hpu_fit coach model data"
NO_FIT = "That kernel is not running a fit; nothing was stopped."


@pytest.fixture(scope="module")
def work(server):
    """A notebook that can fit a model."""
    opened = Notebook(server, "first.ipynb")
    opened.run(LOAD)
    yield opened
    opened.close()


@pytest.fixture
def fitting(server, work):
    """Start the fit of a notebook and return its path; the fit ends after the test."""

    def begin(**names):
        for name, value in names.items():
            work.run(f"{name} = {value}")
        work.message = work.client.execute(FIT)
        wait_for(lambda: fit_holder(server, "training"))
        return f"hpu_magic/cards/0/holders/{work.kernel}/fit"

    yield begin
    server.ask(f"hpu_magic/cards/0/holders/{work.kernel}/fit", "DELETE")
    wait_for(lambda: not fit_holder(server))
    work.run("factor = 1.0")


def fit_holder(server, phase=None):
    """Return the holder that runs a fit, optionally in the specified phase."""
    holders = [holder for card in server.cards() for holder in card["holders"]]
    found = [each for each in holders if each["fit"] and phase in (None, each["fit"]["phase"])]
    return found[0] if found else None


def test_fit_is_in_the_snapshot_and_can_be_stopped_while_its_cell_runs(server, work, fitting):
    path = fitting()
    holder = wait_for(lambda: (found := fit_holder(server)) and found["fit"]["loss"] and found)
    fit = holder["fit"]
    assert holder["kernel"]["notebook"]["path"] == "first.ipynb"
    assert (fit["model"], fit["epochs"], fit["batches"]) == ("DigitReader", 100_000, 4)
    assert (fit["loss_name"], fit["broken"], fit["stoppable"]) == ("loss", "", True)
    assert min(fit["step"], fit["rate"], fit["remaining"], fit["loss"]) > 0
    assert 0 <= fit["share"] < 0.1

    answer = server.ask(path, "DELETE")
    assert (answer.status, answer.text) == (202, "")
    assert wait_for(lambda: work.client.get_shell_msg(timeout=60))["content"]["status"] == "ok"
    assert work.run("print(result.outcome)") == "stopped\n"
    assert fit_holder(server) is None
    assert server.ask(path, "DELETE").refusal == (409, NO_FIT)


def answer(client, topic, **content):
    """Send a request over the control channel of a kernel, as a page would."""
    request = client.session.msg(f"hpu_magic_{topic}_request", content)
    client.control_channel.send(request)
    reply = client.control_channel.get_msg(timeout=60)
    assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
    return reply["content"]


def test_kernel_reports_a_fit_on_the_cpu(notebook):
    work = notebook("cpu.ipynb")
    work.run(LOAD)
    pid = int(work.run("import os; print(os.getpid())"))
    assert answer(work.client, "status")["fit"] is None
    assert answer(work.client, "stop", pid=pid) == {"status": "error", "message": NO_FIT}
    work.client.execute(f"accelerator = 'cpu'\n{FIT}")
    facts = wait_for(lambda: (found := answer(work.client, "status"))["fit"] and found)
    assert facts["card"] is None
    assert (facts["fit"]["model"], facts["fit"]["stoppable"]) == ("DigitReader", True)
    assert answer(work.client, "stop", pid=pid) == {"status": "ok"}
    wait_for(lambda: answer(work.client, "status")["fit"] is None)
    assert work.run("print(result.outcome)") == "stopped\n"


def wait_for_file(path):
    """Return the code of a cell that runs until a file exists."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}):\n    time.sleep(0.1)"


def test_status_request_is_not_activity(server, notebook, tmp_path):
    work = notebook("status.ipynb")
    work.run("%load_ext hpu_magic")
    kernel = f"api/kernels/{work.kernel}"
    end = tmp_path / "end"
    work.client.execute(wait_for_file(end))
    wait_for(lambda: server.ask(kernel).json["execution_state"] == "busy")
    assert answer(work.client, "status")["status"] == "ok"
    time.sleep(0.5)  # time for the server to receive the status
    state = server.ask(kernel).json["execution_state"]
    end.touch()
    assert state == "busy"

    wait_for(lambda: server.ask(kernel).json["execution_state"] == "idle")
    before = server.ask(kernel).json["last_activity"]
    answer(work.client, "status")
    time.sleep(0.5)
    assert server.ask(kernel).json["last_activity"] == before


def test_stream_encodes_nan_as_json_text(server, fitting):
    def refuse(constant):
        raise AssertionError(f"{constant} is not valid JSON")

    fitting(factor="float('nan')")
    stream = server.stream("?interval=0.5")
    try:
        for _ in range(40):
            message = json.loads(stream.socket.recv(), parse_constant=refuse)
            fits = (
                [holder["fit"] for card in message.get("cards", ()) for holder in card["holders"]]
                if message["type"] == "snapshot"
                else []
            )
            if any(fit and fit["broken"] for fit in fits):
                break
    finally:
        stream.close()
    [fit] = fits
    assert fit["loss"] == "NaN"
    assert fit["broken"].startswith("loss NaN since step 1")


def test_stop_request_is_not_activity(server, work, fitting, tmp_path):
    path = fitting()
    kernel = f"api/kernels/{work.kernel}"
    end = tmp_path / "end"
    work.client.execute(wait_for_file(end))  # starts after the fit
    assert server.ask(path, "DELETE").status == 202
    wait_for(lambda: fit_holder(server) is None)
    time.sleep(0.5)  # time for the server to receive the status
    state = server.ask(kernel).json["execution_state"]
    end.touch()
    assert state == "busy"


def test_stop_of_other_fits_is_rejected(server, work, fitting, notebook):
    other = notebook("other.ipynb")
    path = fitting()
    wrong = {
        ("cards/0", "cards/1"): (409, "That kernel does not hold HPU 1; nothing was stopped."),
        ("cards/0", "cards/7"): (404, "The machine has no HPU 7."),
        (work.kernel, other.kernel): (409, "That kernel does not hold HPU 0; nothing was stopped."),
        (work.kernel, "0-0-0-0-0"): (
            *(404, "That kernel does not belong to this server; nothing was stopped."),
        ),
    }
    for change, expected in wrong.items():
        assert server.ask(path.replace(*change), "DELETE").refusal == expected
    assert fit_holder(server, "training")
    assert server.ask(path).status == 405


CHILD = f"""
import sys
from hpu_magic import sessions
{ACQUIRE}
sessions.PublishedFit(lambda: None).update(sessions.Fit("Child", began=1.0))
print(flush=True)
sys.stdin.readline()
"""


def test_fit_of_another_process_is_shown_but_cannot_be_stopped(server, notebook, outsider):
    outsider(code=CHILD)
    holder = wait_for(lambda: fit_holder(server))
    assert (holder["kernel"], holder["fit"]["model"], holder["fit"]["stoppable"]) == (
        *(None, "Child", False),
    )
    parent = notebook("parent.ipynb")
    parent.run("%load_ext hpu_magic")
    parent.run(f"""
        import subprocess, sys
        child = subprocess.Popen(
            [sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        child.stdout.readline()
    """)
    kernels = {
        holder["kernel"] and holder["kernel"]["id"]: (card["index"], holder["fit"])
        for card in server.cards()
        for holder in card["holders"]
    }
    index, fit = kernels[parent.kernel]
    assert (fit["model"], fit["stoppable"]) == ("Child", False)
    answer = server.ask(f"hpu_magic/cards/{index}/holders/{parent.kernel}/fit", "DELETE")
    assert answer.refusal == (
        *(409, "That fit runs in a process that the kernel started: stop it there."),
    )
    parent.run("child.kill(); child.wait()")


def pids(card):
    return [holder["pid"] for holder in card["holders"]]


def test_kernel_that_does_not_answer_is_reported(server, notebook):
    stuck = notebook("stuck.ipynb")
    stuck.run(ACQUIRE)
    # This kernel publishes a fit, but does not handle requests.
    stuck.run("""
        from hpu_magic import sessions
        fit = sessions.PublishedFit(lambda: None)
        fit.update(sessions.Fit("Stuck", began=1.0))
    """)
    holder = wait_for(lambda: fit_holder(server))
    assert holder["fit"]["stoppable"] is False
    [index] = [card["index"] for card in server.cards() if holder["pid"] in pids(card)]
    began = time.monotonic()
    answer = server.ask(f"hpu_magic/cards/{index}/holders/{stuck.kernel}/fit", "DELETE")
    assert time.monotonic() - began > 4
    assert answer.refusal == (
        504,
        "The kernel received the request to stop its fit, but it did not answer within 5 s; "
        "interrupt the kernel if the fit does not stop.",
    )


@pytest.mark.skipif(
    "transport_encryption" not in AsyncKernelManager.class_trait_names(),
    reason="this jupyter_client cannot encrypt messages to kernels",
)
def test_kernel_with_encrypted_channels_answers():
    async def stop():
        manager = AsyncKernelManager(transport_encryption="required")
        manager.kernel_spec.metadata["supported_encryption"] = "curve"
        await manager.start_kernel()
        client = manager.client()
        try:
            client.start_channels()
            await client.wait_for_ready(timeout=60)
            await client.execute("%load_ext hpu_magic", reply=True, timeout=60)
            return await control.request(manager, "stop", {"pid": manager.provisioner.pid})
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)

    assert asyncio.run(stop()) == {"status": "error", "message": NO_FIT}
