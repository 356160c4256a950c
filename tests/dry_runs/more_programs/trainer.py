"""Fine-tuning of BERT with transformers' `Trainer`."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
config = BertConfig(
    vocab_size=200,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
)
data = [
    {"input_ids": torch.randint(0, 200, (16,)), "labels": torch.tensor(index % 2)}
    for index in range(24)
]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
    )
    model = BertForSequenceClassification(config)
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8])
    trainer.train()
