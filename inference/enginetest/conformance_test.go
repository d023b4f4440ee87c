package enginetest_test

import (
	"testing"

	"demur/inference"
	"demur/inference/enginetest"
)

func TestScripted(t *testing.T) {
	for name, s := range map[string]enginetest.Script{
		"default":     {},
		"bare":        {NoScores: true, NoGrammars: true, Context: 512},
		"other model": {Seed: 7, Spread: 0.5, Words: 60, Context: 300},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) inference.Engine { return open(t, s) }, enginetest.Options{Agreement: 1})
		})
	}
	t.Run("not reproducible", func(t *testing.T) {
		enginetest.Run(t, func(t *testing.T) inference.Engine { return open(t, enginetest.Script{Draws: true}) }, enginetest.Options{Agreement: -1})
	})
}
