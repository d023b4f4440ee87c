#!/usr/bin/env python3
"""Times how fast Hugging Face Transformers gives the states that demur extract gives.

Needs what compare.py needs. tools/bench calls it, with its own flag -transformers:

    bin/bench -q8_0 Q8_0.gguf -f16 F16.gguf -sides extract -transformers venv/bin/python

Its first line of input is the work, {"ids": [[token, …], …], "positions": [[−4, −1], …]};
it answers with the batch size that was fastest on a part of it. For each line that
follows it does all of the work once and answers with the seconds. Loading, reading
and storing are not counted. Prompts are sorted by length, so that little is padded.
"""

import argparse
import json
import sys
import time

import torch
from transformers import DynamicCache

from reference import Stream, load


def batches(work, size):
    """Yields ids, mask and positions of prompts of about one length, padded on the right, where causal attention does not look."""
    order = sorted(range(len(work["ids"])), key=lambda i: len(work["ids"][i]))
    for at in range(0, len(order), size):
        part = order[at : at + size]
        longest = max(len(work["ids"][i]) for i in part)
        ids = torch.zeros(len(part), longest, dtype=torch.long)
        mask = torch.zeros(len(part), longest, dtype=torch.long)
        positions = torch.zeros(len(part), len(work["positions"][0]), dtype=torch.long)
        for row, i in enumerate(part):
            tokens = torch.tensor(work["ids"][i])
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
            positions[row] = torch.tensor(work["positions"][i]) + len(tokens) - longest
        yield part, ids, mask, positions


def prefix_of(ids):
    """Returns how many tokens all prompts begin with alike, short of the last of any."""
    n = 0
    while all(len(x) > n + 1 and x[n] == ids[0][n] for x in ids):
        n += 1
    return n


def run(stream, work, size, shared):
    """Returns the states [blocks, positions, width] of each prompt, and the seconds; shared tokens are evaluated once."""
    found = [None] * len(work["ids"])
    began = time.perf_counter()
    if shared:
        stream(torch.tensor([work["ids"][0][:shared]]), torch.tensor([[-1]]), use_cache=True)
        kept = [(layer.keys, layer.values) for layer in stream.out.past_key_values.layers]
    for part, ids, mask, positions in batches(work, size):
        more = {"attention_mask": mask}
        if shared:
            cache = DynamicCache()
            for i, (keys, values) in enumerate(kept):
                cache.update(keys.expand(len(part), -1, -1, -1), values.expand(len(part), -1, -1, -1), i)
            more |= {"past_key_values": cache, "use_cache": True}
            ids = ids[:, shared:]
        states = stream(ids, positions, **more).float().numpy()
        for row, i in enumerate(part):
            found[i] = states[:, row]
    return found, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefix", action="store_true", help="evaluate the tokens that all prompts begin with once")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model, _ = load(args.gguf, getattr(torch, args.dtype))
    stream = Stream(model)
    work = json.loads(sys.stdin.readline())
    shared = prefix_of(work["ids"]) if args.prefix else 0
    some = {k: v[: min(len(v), 24)] for k, v in work.items()}
    whole, _ = run(stream, some, 1, 0)
    parts, _ = run(stream, some, 8, shared)
    for a, b in zip(whole, parts):
        if torch.cosine_similarity(torch.tensor(a).flatten(), torch.tensor(b).flatten(), dim=0) < 0.99:
            sys.exit("the states of a batch are not those of its prompts")
    seconds = {size: run(stream, some, size, shared)[1] for size in (1, 4, 8, 12, 24)}
    best = min(seconds, key=seconds.get)
    print(json.dumps({"batch": best, "prefix": shared, "torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": run(stream, work, best, shared)[1]}), flush=True)


if __name__ == "__main__":
    main()
