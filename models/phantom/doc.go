// Package phantom builds phantoms: language models whose weights are computed,
// not trained, so that all that demur measures has a known true value. It
// imports nothing of demur but its own internals, and only the standard library.
//
//	spec, err := phantom.Preset("default")   // or change its fields; Validate, Hash
//	model, err := phantom.Build(spec)         // some hundredths of a second
//	err = model.WriteGGUF(w)                  // 2 MB, equal specs give equal bytes
//
//	truth, err := model.Truth(prompts, plan)  // what it does with them, without an engine
//	truth.Quantities()                        // planted values with standard deviations, by demur's metric names
//	q.Agrees(measured, 0.99, n)               // whether a measurement is that of a sound instrument
//	truth.Refold(phantom.Strict)              // the same under the other fold
//	truth.Simulate(seed)                      // the labels of one run, drawn from the truth
//
//	model.Directions()                        // harm and refusal: vector, block, read-out
//	model.PromptTruth(prompt, plan, phantom.Add(block, vector, dose)) // what steering does
//	model.Streams(model.Tokenize(phantom.Render(messages)))           // activations in float64
//	phantom.Estimators(activations, p, shrinkage, ridge)              // what probes converge to
//
// # The construction
//
// It is explained with a drawing and a worked example in docs/phantom.md; this is
// the same in short, with where to find it in the code.
//
// The residual stream has coordinates with a meaning (basis.go), rotated as a
// whole by a seeded orthogonal matrix, so that in the file every direction is
// dense. A word's embedding holds its harm, its trigger, the error that the
// self-prediction makes at it, and the kind of refusal that it calls for; a
// template token's holds what may come next. One coordinate is large and nearly
// constant, so that RMSNorm divides by nearly a constant.
//
// HarmBlock brings the greatest harm so far to every later position: a head with
// constant queries and keys proportional to harm, 40 nats between two levels,
// has for its mean the maximum. Keys lie in the slowest rotary pair, which hardly
// turns. Its other heads say whether a prediction was asked for, look at the
// token just before, and carry noise.
//
// RefusalBlock does the same with the triggers, only at positions after the
// request; what it brings is written along the refusal direction, which meets the
// harm direction at Angle. The read-outs are biorthogonal: each gives 1 on its own
// direction and 0 on the other.
//
// The last block's SwiGLU units, which are open only at the tokens that state a
// prediction, write its log odds, their size, and the harm (build.go).
//
// The output row of a token is 600 where it may come next; among the first tokens
// of answers, refusals have half the log odds z of refusing, compliances minus
// half, so that P(refuse) = 1/(1+exp(−z/T)) with
//
//	z = Slope·(r − Threshold),   r the greatest trigger of the request's words.
//
// Partial refusals and deflections count as refusals here (fold lenient); a
// word's kind puts one of them in the place of the more frequent full refusal.
// Truth takes all of it from a forward pass over the whole vocabulary. The
// prediction's log odds are
//
//	y = SelfSlope·(SelfWeight·r + error + SelfBias − Threshold).
//
// A digit k has the logit DigitSharpness·(2kf − k²), greatest at the k nearest
// to f, with f = ConfidenceBase + ConfidenceGain·|y| or the harm.
//
// # What engines add
//
// Engines keep keys and values as 16-bit numbers. Between llama.cpp v0.5.0 and the
// forward pass in float64 the competing logits differ by less than 0.01 (digits:
// 0.03) and P(refuse) by less than 0.002, on the demo set; decisions at
// temperature 0 that fell by less than twice that are the Slack of a Quantity.
package phantom
