"""Test the kernels and notebooks of holders, and how cards are freed."""

import json
import os
import signal
import sys
import time
from contextlib import closing

from conftest import ACQUIRE, Server, holding
from started_process import wait_for

SECRET = "S3CRET"
PYTHON = os.path.basename(sys.executable)
ANSWERS = ("hpu_magic/snapshot", "metrics")


def held(server):
    """Return the only held card and its holder."""
    [found] = [(card, holder) for card in server.cards() for holder in card["holders"]]
    return found


def free(server):
    return not any(card["holders"] for card in server.cards())


def test_holder_has_kernel_and_notebook(server, notebook):
    work = notebook("deep/work.ipynb")
    pid = int(work.run(f"{ACQUIRE}; import os; print(os.getpid())"))
    card, holder = held(server)
    assert (card["index"], card["simulated"], card["memory_total"]) == (0, True, 4 << 30)
    assert holder["pid"] == pid
    assert "ancestors" not in holder
    kernel = holder["kernel"]
    assert (kernel["id"], kernel["name"]) == (work.kernel, "python3")
    assert kernel["state"] in ("idle", "busy")
    assert kernel["notebook"] == {
        "path": "deep/work.ipynb",
        "name": "work.ipynb",
        "type": "notebook",
    }

    renamed = {"path": "deep/better.ipynb", "name": "better.ipynb"}
    assert server.ask(f"api/sessions/{work.session['id']}", "PATCH", renamed).status == 200
    assert held(server)[1]["kernel"]["notebook"]["path"] == "deep/better.ipynb"


def test_idle_time_is_from_the_kernel_or_the_server(server, notebook):
    silent, reporting = notebook("silent.ipynb"), notebook("reporting.ipynb")
    silent.run(ACQUIRE)
    reporting.run("%load_ext hpu_magic")
    reporting.run(ACQUIRE)

    def idle():
        return [holder["idle"] for card in server.cards() for holder in card["holders"]]

    wait_for(lambda: all(idle()))
    # Silent executions of a front end are not activity, but the server cannot detect them.
    time.sleep(0.5)
    before = idle()
    for client in (silent.client, reporting.client):
        client.execute_interactive("1 + 1", silent=True, timeout=60)
    after = idle()
    assert after[0] < before[0]
    assert after[1] >= before[1] > 0.3

    for place, work in enumerate((silent, reporting)):
        work.client.execute("import time; time.sleep(2)")
        wait_for(lambda place=place: idle()[place] == 0)


def test_child_of_a_kernel_belongs_to_the_kernel(server, notebook):
    work = notebook("parent.ipynb")
    pid = int(
        work.run(f"""
            import subprocess, sys
            code = "{ACQUIRE}; print(flush=True); input()"
            child = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            child.stdout.readline()
            print(child.pid)
        """)
    )
    _, holder = held(server)
    assert holder["pid"] == pid
    assert holder["kernel"]["id"] == work.kernel
    work.run("child.kill(); child.wait()")
    assert free(server)


def test_server_of_an_idle_kernel_is_not_idle(server, notebook):
    work = notebook("serving.ipynb")
    work.run(f"""
        import os, subprocess, sys
        child = subprocess.Popen(
            ["VLLM::EngineCore", "-c", "{ACQUIRE}; print(flush=True); input()"],
            executable=sys.executable,
            # A process with this name does not find its virtual environment.
            env={{**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        child.stdout.readline()
    """)
    _, holder = held(server)
    assert holder["kernel"]["id"] == work.kernel
    assert holder["command"].startswith("VLLM::EngineCore")
    assert holder["idle"] is None
    work.run("child.kill(); child.wait()")
    assert free(server)


def test_killed_kernel_holds_nothing(server, notebook):
    work = notebook("killed.ipynb")
    pid = int(work.run(f"{ACQUIRE}; import os; print(os.getpid())"))
    assert not free(server)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: free(server))


def test_shutting_down_the_holder_frees_the_card(server, notebook):
    work = notebook("forgotten.ipynb")
    work.run(ACQUIRE)
    wrong_card = server.ask(f"hpu_magic/cards/1/holders/{work.kernel}", "DELETE")
    assert wrong_card.refusal == (409, "That kernel does not hold HPU 1; nothing was shut down.")
    assert not free(server)

    done = server.ask(f"hpu_magic/cards/0/holders/{work.kernel}", "DELETE")
    assert (done.status, done.text) == (204, "")
    assert free(server)
    assert work.kernel not in [kernel["id"] for kernel in server.ask("api/kernels").json]

    again = server.ask(f"hpu_magic/cards/0/holders/{work.kernel}", "DELETE")
    assert again.status == 404
    assert "does not belong to this server" in again.json["message"]


def test_process_outside_jupyter_is_shown_but_cannot_be_shut_down(server, notebook, outsider):
    process = outsider()
    idle = notebook("idle.ipynb")
    _, holder = held(server)
    assert (holder["pid"], holder["kernel"]) == (process.pid, None)
    for kernel, status in ((idle.kernel, 409), (str(process.pid), 404), ("0-0-0-0-0", 404)):
        answer = server.ask(f"hpu_magic/cards/0/holders/{kernel}", "DELETE")
        assert answer.status == status
        assert "nothing was shut down" in answer.json["message"]
    assert process.poll() is None
    assert idle.run("print('alive')") == "alive\n"


def test_unknown_card_is_rejected(server, notebook):
    work = notebook("known.ipynb")
    answer = server.ask(f"hpu_magic/cards/3/holders/{work.kernel}", "DELETE")
    assert answer.refusal == (404, "The machine has no HPU 3.")


def test_names_are_plain_data(server, outsider):
    markup = "<img src=x onerror=alert(1)>"
    outsider(script=f"{markup}.py")
    answer = server.ask("hpu_magic/snapshot")
    assert answer.headers["Content-Type"].startswith("application/json")
    [command] = [holder["command"] for card in answer.json["cards"] for holder in card["holders"]]
    assert command == f"{PYTHON} {markup}.py"


def test_responses_have_no_arguments_of_holders(server, outsider):
    outsider("--token", SECRET, f"--password={SECRET}")
    assert held(server)[1]["command"] == f"{PYTHON} hold.py"
    stream = server.stream("?interval=0.5")
    messages = [stream.message(), stream.snapshot()]
    texts = [json.dumps(messages), *(server.ask(path).text for path in ANSWERS)]
    stream.close()
    assert "hold.py" in texts[0]
    assert [text.count(SECRET) for text in texts] == [0, 0, 0]


def test_administrator_can_show_arguments(tmp_path, forked_python):
    server = Server(forked_python, tmp_path, "--HpuMagicServer.show_arguments=True")
    with closing(server), holding(server, f"--token={SECRET}"):
        assert held(server)[1]["command"] == f"{PYTHON} hold.py --token={SECRET}"
        assert SECRET not in server.ask("metrics").text
