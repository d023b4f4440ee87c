#!/usr/bin/env python3
"""Compares the states that demur extract kept with those of Hugging Face Transformers.

Needs Python with torch, transformers, accelerate, gguf, numpy and pyarrow:

    python3 -m venv venv && venv/bin/pip install torch transformers accelerate gguf numpy pyarrow

The reference has the weights of a GGUF file in float32. Make files of the same
weights from one, extract with each, and compare:

    go run ./tools/quantise SmolLM2-135M-Instruct.Q4_1.gguf F16.gguf f16
    go run ./tools/quantise F16.gguf Q8_0.gguf q8_0
    demur extract --requests demo --out f16 --model F16.gguf
    demur extract --requests demo --out q8_0 --model Q8_0.gguf
    venv/bin/python tools/transformers/compare.py F16.gguf f16 q8_0

Transformers is given demur's token ids; that its own tokenizer, made from the same
file, gives the same ids is checked. For each block and position two cosines stand
there, the worst and the mean over prompts: raw, and centred, of the vectors less
their mean over prompts. Raw cosines are ruled by what all prompts have in common,
mostly a few huge coordinates, and do not notice a wrong layer: see with --shift 1,
which compares block l with block l + 1 of the reference. --blocks prints every block.

Ends with 1 if a worst centred cosine of the first folder is below --least.
"""

import argparse
import glob
import sys

import numpy as np
import pyarrow.parquet as pq
import torch

from reference import Stream, load


def read(folder):
    """Returns {(layer, anchor): {prompt: values}} and {(prompt, anchor): (position, token)}, layers from 0."""
    states, places = {}, {}
    for file in sorted(glob.glob(folder + "/activations/layer_*.parquet")):
        table = pq.read_table(file)
        values = table["values"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)
        for row, v in zip(table.drop_columns("values").to_pylist(), values):
            states.setdefault((row["layer"], row["anchor"]), {})[row["prompt_id"]] = v.astype(np.float64)
            places[row["prompt_id"], row["anchor"]] = row["position"], row["token"]
    if not states:
        sys.exit(folder + " holds no activations of blocks")
    return states, places


def check_tokens(folder, tokenizer):
    """Returns {prompt: ids} of demur, and ends if the tokenizer gives others."""
    messages = {r["prompt_id"]: r["messages"] for r in pq.read_table(folder + "/prompts.parquet").to_pylist()}
    ids = {r["prompt_id"]: r["tokens"] for r in pq.read_table(folder + "/tokens.parquet").to_pylist()}
    for prompt, mine in ids.items():
        theirs = tokenizer.apply_chat_template(messages[prompt], add_generation_prompt=True, tokenize=True)["input_ids"]
        if mine != list(theirs):
            sys.exit(f"prompt {prompt[:8]}: demur has the tokens {mine}, Transformers {theirs}")
    return ids


def evaluate(stream, ids, places, anchors):
    """Returns {prompt: [blocks, anchors, width]} of the reference; prompts of one length together, so that none is padded."""
    lengths = {}
    for prompt, tokens in ids.items():
        lengths.setdefault(len(tokens), []).append(prompt)
    found = {}
    for prompts in lengths.values():
        positions = torch.tensor([[places[p, a][0] for a in anchors] for p in prompts])
        rows = stream(torch.tensor([ids[p] for p in prompts]), positions).double().numpy()
        found |= {p: rows[:, i] for i, p in enumerate(prompts)}
    return found


def cosines(a, b):
    """Returns those of the rows of two matrices."""
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf", help="weights of the reference")
    parser.add_argument("folders", nargs="+", help="written by demur extract --requests F --out FOLDER")
    parser.add_argument("--shift", type=int, default=0, help="compare with so many blocks later: a planted mistake")
    parser.add_argument("--least", type=float, default=0.999, help="worst centred cosine of the first folder")
    parser.add_argument("--blocks", action="store_true", help="print every block")
    args = parser.parse_args()

    model, tokenizer = load(args.gguf)
    stream = Stream(model)
    good, reference = True, {}
    for folder in args.folders:
        states, places = read(folder)
        ids = check_tokens(folder, tokenizer)
        layers = sorted({layer for layer, _ in states})
        anchors = sorted({anchor for _, anchor in states} - {"mean"})
        for (prompt, anchor), (position, token) in places.items():
            if anchor != "mean" and ids[prompt][position] != token:
                sys.exit(f"prompt {prompt[:8]}: {anchor} is token {token}, at its position is {ids[prompt][position]}")
        if not reference or reference[0] != (ids, places):
            reference = [(ids, places), evaluate(stream, ids, places, anchors)]
        found = reference[1]
        print(f"{folder}: {len(ids)} prompts, tokens equal; blocks {layers[0]} to {layers[-1]}" + (f", against {args.shift} later" if args.shift else ""))
        print("  position  block    raw worst   raw mean    centred worst  centred mean")
        for k, a in enumerate(anchors):
            rows = []
            for layer in layers:
                if layer + args.shift >= len(stream.blocks):
                    continue
                prompts = sorted(states[layer, a])
                x = np.array([states[layer, a][p] for p in prompts])
                y = np.array([found[p][layer + args.shift, k] for p in prompts])
                raw, centred = cosines(x, y), cosines(x - x.mean(0), y - y.mean(0))
                rows.append((layer, raw.min(), raw.mean(), centred.min(), centred.mean()))
            for row in rows if args.blocks else []:
                print("  %-9s %5d    %.6f    %.6f    %.6f       %.6f" % (a, *row))
            table = np.array(rows)
            worst = table[table[:, 3].argmin()]
            print("  %-9s %5s    %.6f    %.6f    %.6f       %.6f   (worst centred at block %d)" % (a, "all", table[:, 1].min(), table[:, 2].mean(), worst[3], table[:, 4].mean(), worst[0]))
            good = good and (folder != args.folders[0] or worst[3] >= args.least)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
