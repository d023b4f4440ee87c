package llamacpp_test

import (
	"testing"

	"demur/inference"
	"demur/inference/enginetest"
	"demur/inference/llamacpp"
)

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute on a real model")
	}
	path := smol(t)
	enginetest.Run(t, func(t *testing.T) inference.Engine {
		library(t)
		e, err := llamacpp.Open(llamacpp.Options{Model: path, Threads: 1, Rows: 24})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}, enginetest.Options{MaxTokens: 12, Draws: 100, Agreement: 0.2})
}
