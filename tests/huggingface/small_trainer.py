"""Code for cells and scripts that defines a short fit with transformers' `Trainer`."""

SETUP = """
import os, tempfile, torch
os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import (
    BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments)
config = BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=8)
rows = [dict(input_ids=torch.arange(i, i + 8) % 32, labels=torch.tensor(i % 2)) for i in range(32)]
place = tempfile.TemporaryDirectory()
folder = place.name
def make_trainer(callbacks=(), trainer_class=Trainer, data=rows, **options):
    options = dict(output_dir=folder, report_to=[], per_device_train_batch_size=8,
        num_train_epochs=2, save_strategy="no", logging_steps=2, eval_strategy="no") | options
    torch.manual_seed(0)
    return trainer_class(BertForSequenceClassification(config), TrainingArguments(**options),
        train_dataset=data, eval_dataset=rows[:16], callbacks=list(callbacks))
class At(TrainerCallback):
    def __init__(self, step, call):
        self.step, self.call = step, call
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            self.call()
trainer = make_trainer()
"""
