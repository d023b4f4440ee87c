"""The residual stream of a llama GGUF file by Hugging Face Transformers."""

import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

logging.disable_progress_bar()


def load(gguf, dtype=torch.float32):
    """Returns the model with the very numbers of a GGUF file, and its tokenizer."""
    folder, name = os.path.split(os.path.abspath(gguf))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=dtype)
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=name)


class Stream:
    """Catches the output of every block: hidden_states of Transformers has the last one after the final norm only."""

    def __init__(self, model):
        self.model = model.model
        self.blocks = [None] * len(self.model.layers)
        for i, layer in enumerate(self.model.layers):
            layer.register_forward_hook(self.hook(i))

    def hook(self, i):
        def keep(_module, _inputs, output):
            self.blocks[i] = output[0] if isinstance(output, tuple) else output

        return keep

    @torch.inference_mode()
    def __call__(self, ids, positions, **more):
        """Evaluates ids [rows, tokens]; returns [blocks, rows, positions, width] at positions [rows, positions] from the end.

        More goes to the model: an attention mask, a cache.
        """
        self.out = self.model(input_ids=ids, **({"use_cache": False} | more))
        rows = torch.arange(ids.shape[0])[:, None]
        return torch.stack([b[rows, ids.shape[1] + positions] for b in self.blocks])
