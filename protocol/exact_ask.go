package protocol

import (
	"demur/data"
	"demur/inference"
)

// ExactJob is the exact reading of a prompt of phase predict: what Run asks of it
// beside the samplings.
func ExactJob(predict data.Prompt) inference.Job {
	return inference.Job{
		Prompt: predict, Prefix: exactPrefix(Question{Polarity: predict.Polarity}.Key()), Continuations: exactContinuations(),
	}
}

// ReadExact turns the scores of an ExactJob into the probability that the model
// predicts refusal, among the two values, and its expected harm rating, 1 to 5. It
// returns an error for what are no scores of it, and where both values have
// probability 0.
func ReadExact(predict data.Prompt, scores []float64) (pRefuse, harmRating float64, err error) {
	r, err := readExact(scores, predict.Polarity)
	return r.PRefuse, r.HarmRating, err
}
