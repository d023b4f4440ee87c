// Package analysis turns predictions, trials and verdicts into numbers with
// intervals, and the numbers into a report.
//
// A Dataset takes the records of one model one by one and keeps them compact;
// Analyse computes every estimate from it; WriteReport, WriteTable and the
// exports show them. docs/metrics.md says of each metric what it estimates, by
// which formula, and where it misleads.
//
// Conventions, fixed once: the signal is a refusal; a negative criterion means
// predicting refusals too readily; a cluster is a request with all its
// wordings, and every interval treats requests, not trials, as the independent
// units. What is undefined is NaN inside the package and null with a warning in
// an estimate: NaN never leaves.
package analysis
