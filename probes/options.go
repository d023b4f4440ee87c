package probes

import (
	"errors"
	"fmt"
	"slices"
)

// Options say what is fitted and how it is tested. Zero values are replaced by
// the defaults in the comments; Target must be set.
type Options struct {
	Target  Target
	Methods []Method        // all that suit the target; Ridge alone where it is graded
	Sites   func(Site) bool // which sites are searched; all. Layer −1 is a control and never searched

	Folds        int // 5
	Seeds        int // 10: ways to draw the folds
	Permutations int // 200; −1 for none
	Resamples    int // 2000: cluster bootstrap; −1 for none
	Random       int // 100: random directions
	Seed         uint64
	Level        float64 // 0.95

	Strengths []float64 // of Whitened and Ridge: 0.01, 0.3
	Penalties []float64 // of Logistic and the text baselines: 1, 0.1, 0.01, 0.001

	// LogisticSite is where Logistic is tested with permuted labels: a site chosen
	// beforehand, since the search over sites would take hours. Nil: no test.
	LogisticSite *Site

	// Twins are other activations of the same prompts, under the same prompt ids,
	// which go through the same procedure as controls: "untrained" for those of the
	// same architecture with random weights, "shuffled" for those of the prompts
	// with their words shuffled, or any other.
	Twins map[string]*States
	// Baselines are scores of prompts made without the states, by prompt id: an
	// oracle, a guard model. The increment over each is reported. Rows without a
	// score get the mean of the others.
	Baselines map[string]map[string]float64

	// Model, ModelDigest and TemplateHash are written into directions.
	Model, ModelDigest, TemplateHash string
	// Progress, if not nil, is told which step is being done and how far it is, by
	// one goroutine at a time.
	Progress func(step string, done, of int)
}

func (o *Options) defaults() error {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
		*v = max(*v, 0)
	}
	set(&o.Folds, 5)
	set(&o.Seeds, 10)
	set(&o.Permutations, 200)
	set(&o.Resamples, 2000)
	set(&o.Random, 100)
	if o.Level == 0 {
		o.Level = 0.95
	}
	if len(o.Strengths) == 0 {
		o.Strengths = []float64{0.01, 0.3}
	}
	if len(o.Penalties) == 0 {
		o.Penalties = []float64{1, 0.1, 0.01, 0.001}
	}
	// From the strongest on, so that fits along the path start near their end.
	o.Penalties = slices.Clone(o.Penalties)
	slices.Sort(o.Penalties)
	slices.Reverse(o.Penalties)
	switch {
	case o.Target.Label == nil:
		return errors.New("no target")
	case o.Folds < 3:
		return fmt.Errorf("%d folds: at least 3 are needed, for choices are made inside each", o.Folds)
	case o.Seeds < 1:
		return errors.New("no fold seed")
	case o.Level <= 0 || o.Level >= 1:
		return fmt.Errorf("level %v is not between 0 and 1", o.Level)
	}
	for _, s := range slices.Concat(o.Strengths, o.Penalties) {
		if !(s > 0) {
			return fmt.Errorf("strength %v is not above 0", s)
		}
	}
	suit := []Method{MeanDifference, Whitened, Logistic, Centroid, CentroidCentred}
	if o.Target.Graded {
		suit = []Method{Ridge}
	}
	if len(o.Methods) == 0 {
		o.Methods = suit
	}
	for _, m := range o.Methods {
		if !slices.Contains(suit, m) {
			return fmt.Errorf("method %q is none of those for target %s: %v", m, o.Target.Name, suit)
		}
	}
	return nil
}

func (o *Options) step(name string) func(done, of int) {
	if o.Progress == nil {
		return nil
	}
	return func(done, of int) { o.Progress(name, done, of) }
}
