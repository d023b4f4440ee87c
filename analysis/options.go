package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"demur/data"
)

// Options say what the headline is and how intervals are made. The zero value is
// the headline that is fixed before anything runs (design, section 6).
type Options struct {
	Question   string     // wording of the prediction question; "" is that of Headline
	Polarity   string     // refuse or answer; "" is that of Headline
	Reading    string     // grammar, free or exact; "" is that of Headline
	Fold       Fold       // "" is Lenient
	Judge      string     // "" is that of Headline
	Truth      string     // judge whose labels are taken as true, to correct the headline's judge by; "" is HumanJudge, where it gave any
	Headline   Headline   // what holds where the four above are empty, if the data have it
	Correction Correction // of d′ and c; the zero value is LogLinear
	Interval   string     // "" takes for each metric the method that was shown to cover; percentile or bca force one
	Resamples  int        // 0 is 2000
	Seed       uint64     // of the resampling; 0 is a seed
	Level      float64    // of intervals; 0 is 0.95
	Risk       float64    // wanted error rate of the routing guarantee; 0 is 0.05
	Others     []*Dataset // of other models on the same requests: their predictions are baselines
	Brief      bool       // only the headline's accuracy, d′, c, ECE, rates and stability, without groups, curves and resampling: for simulations by the thousand
	Created    string     // a line for the report, such as the run's name
}

// A Headline is what was fixed before a run: a preference. Where the data lack
// it, the analysis falls back to what they have and warns, while what Options
// names itself must be there. Empty fields are rules, grammar, default and refuse.
type Headline struct {
	Judge, Reading, Question, Polarity string
}

func (o Options) withDefaults() (Options, error) {
	if o.Resamples == 0 {
		o.Resamples = 2000
	}
	if o.Level == 0 {
		o.Level = 0.95
	}
	if o.Risk == 0 {
		o.Risk = 0.05
	}
	fold, err := ParseFold(string(o.Fold))
	if err != nil {
		return o, err
	}
	o.Fold = fold
	switch {
	case o.Resamples < 100:
		return o, fmt.Errorf("%d resamples are too few for an interval; take at least 100", o.Resamples)
	case !(o.Level > 0.5 && o.Level < 1):
		return o, fmt.Errorf("level %v is not between 0.5 and 1", o.Level)
	case !(o.Risk > 0 && o.Risk < 1):
		return o, fmt.Errorf("risk %v is not between 0 and 1", o.Risk)
	case !slices.Contains([]string{"", "percentile", "bca"}, o.Interval):
		return o, fmt.Errorf("interval %q is not known; choose percentile or bca, or leave it out", o.Interval)
	}
	return o, nil
}

// settle fills in what depends on the data: the wording, polarity, reading and
// judge of the headline where the data lack the preferred. Each departure is a
// warning.
func (o Options) settle(d *Dataset) (Options, []string, error) {
	var warnings []string
	choose := func(asked *string, preferred, standard string, have []string, missing, what string) error {
		switch {
		case *asked != "":
			if !slices.Contains(have, *asked) {
				return fmt.Errorf("%s %q %s here; those that there are: %v", what, *asked, missing, have)
			}
			return nil
		case preferred != "" && slices.Contains(have, preferred):
			*asked = preferred
			return nil
		case slices.Contains(have, standard):
			*asked = standard
		case len(have) > 0:
			*asked = have[0]
		}
		if want := cmp.Or(preferred, standard); len(have) > 0 && *asked != "" && *asked != want {
			warnings = append(warnings, fmt.Sprintf("The %s of the headline, %s, %s; %s is used.", what, want, missing, *asked))
		}
		return nil
	}
	if err := choose(&o.Judge, o.Headline.Judge, "rules", d.Judges(), "gave no verdicts", "judge"); err != nil {
		return o, nil, err
	}
	if len(d.preds) == 0 {
		o.Polarity = cmp.Or(o.Polarity, o.Headline.Polarity, data.AskRefuse)
		return o, append(warnings, "There are no predictions: only behaviour and its stability can be analysed."), nil
	}
	have := func(pick func(p predictionRow) uint16) []string {
		seen := map[string]bool{}
		for _, p := range d.preds {
			seen[d.labels.list[pick(p)]] = true
		}
		return slices.Sorted(maps.Keys(seen))
	}
	err := choose(&o.Question, o.Headline.Question, "default", have(func(p predictionRow) uint16 { return p.question }), "was not asked", "wording")
	if err != nil {
		return o, nil, err
	}
	polarities := have(func(p predictionRow) uint16 { return p.polarity })
	if len(polarities) == 1 && polarities[0] == "" && o.Polarity == data.AskRefuse {
		o.Polarity = "" // tables without a polarity ask whether the model will refuse
	} else if err := choose(&o.Polarity, o.Headline.Polarity, data.AskRefuse, polarities, "was not asked", "polarity"); err != nil {
		return o, nil, err
	}
	if err := choose(&o.Reading, o.Headline.Reading, data.Grammar, d.Readings(), "was not taken", "reading"); err != nil {
		return o, nil, err
	}
	return o, warnings, nil
}

// level is stated confidence as one of 1…5; 0 where none was stated. The
// expectation of the exact reading is rounded, halves up.
func (p predictionRow) level() int {
	c := float64(p.confidence)
	if math.IsNaN(c) {
		return 0
	}
	return int(clamp(math.Floor(c+0.5), 1, 5))
}
