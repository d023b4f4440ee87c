// Package llamacpp runs a GGUF model in this process through llama.cpp.
//
// # How a unit is run
//
// A unit is a list of jobs, a job is one prompt with all its samplings. The
// tokens that all prompts of one layout share (the template's opening, the
// system message, the fixed words of a question) are evaluated once in the life
// of an engine and kept as a copy of their cache cells; the rest of a prompt is
// evaluated once, together with other prompts. From there a prompt's
// continuations form a tree: those that have produced the same tokens so far
// are one row of the batch and draw from the same logits; where they part, the
// row is forked. Rows that become free are taken by the next job of the unit,
// never by another unit.
//
// # One stream a row
//
// Each row has a stream of its own in the cache (llama.cpp's kv_unified off)
// and not, as one would first think of for forks, a share of one unified cache.
// In a unified cache the attention kernel of the CPU looks at the mask of every
// cell of every row of the batch: measured on SmolLM2-135M Q8_0, one thread,
// 128 tokens after a prompt of 60, rows a second in a unified cache against
// streams are 245 and 323 with 20 rows, 248 and 369 with 32, 213 and 394 with
// 48. The price is a copy of the stream at a fork, about a millisecond, some
// twenty times a prompt. Streams also make the order of the cells of a row its
// own affair, so that fewer things can change a bit.
//
// llama.cpp wants the streams of a batch to be neighbours, so the rows are kept
// on the streams 0 … n−1: a hole is filled by a fork or by the highest row.
// A fork that finds no stream is parked as a copy of its cells until one is
// free.
//
// # What fixes the bits
//
// The number of rows of a batch changes the last bits of a product, so the text
// of a trial is a function of its whole unit and of the plan (Info.Plan), and of
// nothing else: not of what the engine ran before, and not of timing. With
// Options.Strict there is one row at a time, each prompt is evaluated alone, and
// the text of a trial does not depend on its unit either.
//
// # Activations
//
// Activate evaluates prompts in a context of its own and copies the tensors
// l_out-N, the residual stream after block N, while they are computed; no
// generation runs through that callback. On first use it looks which tensors the
// model has and tries whether the rows of several prompts come in their order.
// Evaluated on the CPU, the stream of a prompt is a function of the prompt and the
// plan alone: the same bits with a shared prefix and beside others as whole and
// alone (seen on the phantom, SmolLM2-135M Q4_1 and Q8_0, Gemma 3 270M Q4_K_M). It
// is not bit for bit the one that Generate had, which puts more tokens into a
// batch: from 64 tokens on the attention kernel rounds otherwise. On SmolLM2-135M
// in Q4_1 and Q8_0 that moved a row by 0.018 of its length on average and by 0.08
// at most, six prompts at three positions, all blocks.
//
// # Steering
//
// What Steer adds after block 1 and later is a control vector of llama.cpp, which
// costs nothing to speak of; what it adds after block 0 and what it projects out is
// written by a callback, in the numbers of 64 bits for the projection, while the
// graph is computed. Texts are made through that callback only while it has
// something to write. Every change is at every position: all rows that a tensor has
// are changed, so that it does not matter which row is which token. Where the last
// block computes rows with outputs only, the others are read by nobody.
package llamacpp
