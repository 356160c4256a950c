"""Cells for front ends without widgets: a fit, a panel and a captured graph."""

import os

import small_fit

SETUP = f"""{small_fit.SETUP}
class Slow(pl.Callback):
    def on_train_batch_end(self, *step):
        __import__("time").sleep(0.2)
def trainer(epochs, *callbacks):
    return make_trainer(max_epochs=epochs, callbacks=list(callbacks))
"""
DEVICE = "%hpu"
PANEL = "%hpu_memory_live"
FIT = "%%hpu_fit -o fitted\ntrainer(epochs).fit(Model(), data)"
RESULT = "fitted.outcome, fitted.steps"
FAILING = "%%hpu_fit -o failed\ntrainer(epochs).fit(Model(fail_at=5), data)"
FAILED = "failed.outcome, failed.steps"
TENSOR = "x = torch.ones(2, 3, device='hpu')"
GRAPH = "%%hpu_capture step --inputs x\ny = x * 2 + 1"
REPLAY = "%hpu_replay step -n 10"
CELLS = ["%load_ext hpu_magic", SETUP, DEVICE, PANEL, FIT, RESULT, TENSOR, GRAPH, REPLAY]
CELLS += [FAILING, FAILED]

# Texts of objects that a front end cannot display.
NO_WORDS = ["VBox(", "HBox(", "HTML(value", "Widget(", "<IPython.core.display.", "<hpu_magic."]

ENVIRONMENT = {**os.environ, "PT_HPU_LAZY_MODE": "1", "HLS_MODULE_ID": "5"}
"""Graphs are captured in lazy mode."""
