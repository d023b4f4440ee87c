// Package probes asks what a model's state knows: it takes the residual stream
// of prompts at named positions, fits directions to it with the controls that a
// strict reader wants to see, and relates them to what the model says and does.
//
//	rows := probes.Extract(ctx, engine, prompts, probes.ExtractOptions{Report: &seen})
//	states, missing, err := probes.Collect(rows)         // or of a table of activations
//	about, err := probes.Join{Requests: …, Prompts: …, Trials: …, Verdicts: …, Predictions: …, Refused: fold}.Rows()
//
//	report, err := probes.Fit(about, states, probes.Options{Target: probes.Refusal()})
//	report.Directions(), report.Scores(), report.Estimates()   // rows of tables
//
//	act, err := probes.StateWordAct(about, states, probes.ActOptions{})
//	angles, warnings, err := probes.Geometry(about, states, probes.Contrasts(), probes.GeometryOptions{Layer: 12})
//	cells, err := probes.Transfer(about, states, byTopic, probes.TransferOptions{Target: …, Site: …})
//	ks, err := probes.Subspaces(about, states, 8, probes.TransferOptions{Target: …, Site: …})
//
//	guard, err := probes.NewGuard(directions)            // of one group
//	for judgement, err := range guard.Run(ctx, engine, prompts) { … }
//
//	levers, err := probes.FitLevers(about, states, targets, probes.LeverOptions{})   // directions and controls, by fold
//	for rows, err := range probes.Steer(ctx, engine, asked, levers, probes.SteerOptions{…}) { … }
//	steered, err := probes.SummariseSteering(rows, about, probes.SteerSummary{})
//
// The package opens no engine and no file: activations, directions and scores
// come and go as rows of package data.
//
// # Positions
//
// Where a request ends in a prompt is found by comparing the tokens of the prompt
// with those of three dummy messages in its place (anchor.go): what all have at
// their beginning and end is the template's. Nothing is counted or assumed of a
// template, and a request whose last token merges with the template's has no
// anchor, and is reported.
//
// # Which rows are independent
//
// A request with its wordings is one cluster. Folds hold whole requests, labels
// are permuted between whole requests, intervals resample whole requests.
//
// # FORMULAS
//
// For classes with means μ1 and μ0, covariance S of all training rows, width w:
//
//	mean_difference   (μ1 − μ0)·x, 0 halfway, 1 the distance of the means
//	whitened          x·(S + λI)⁻¹(μ1 − μ0), λ = strength · tr S / w; as least squares to 0 and 1
//	logistic          log odds, |coefficients|²/2 penalised, on scaled coordinates
//	centroid          cos(x, μ1) − cos(x, μ0), mean over layers
//	centroid_centred  the same, with the mean of the training rows taken away
//	ridge             whitened, for graded labels
//
// The whitened difference is linear discriminant analysis with shrinkage: see
// gram.whitened for why S may be the covariance of all rows.
//
// # How a site is chosen
//
// Five folds. With one left out, every site and strength is judged by the other
// four: each is scored by a fit without it and without the fold left out. The
// best of them scores the fold left out. This is done anew for each of ten ways to
// draw the folds and each permutation of the labels; so what is reported is of a
// procedure that never saw the requests it is tested on, its choices included.
//
// # What it costs
//
// The methods that need no iteration see a site through the inner products of its
// rows, computed once. Sums over folds of these give the mean difference and the
// centroids of any training set; one inverse a strength gives all fits without a
// fold, or a pair of folds, by a block of itself (gram.go). So 200 permutations
// and 10 ways to fold cost about as much as a few fits. Memory is a few matrices
// of rows × rows for each processor, beside the states.
package probes
