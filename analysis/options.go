package analysis

import (
	"fmt"
	"math"
	"slices"

	"demur/data"
)

// Options say what the headline is and how intervals are made. The zero value is
// the headline that is fixed before anything runs (design, section 6).
type Options struct {
	Question   string     // wording of the prediction question; "" is default
	Polarity   string     // refuse or answer; "" is refuse
	Reading    string     // grammar, free or exact; "" is grammar
	Fold       Fold       // "" is Lenient
	Judge      string     // "" is rules
	Correction Correction // of d′ and c; the zero value is LogLinear
	Interval   string     // "" takes for each metric the method that was shown to cover; percentile or bca force one
	Resamples  int        // 0 is 2000
	Seed       uint64     // of the resampling; 0 is a seed
	Level      float64    // of intervals; 0 is 0.95
	Risk       float64    // wanted error rate of the routing guarantee; 0 is 0.05
	Brief      bool       // only the headline's accuracy, d′, c, ECE, rates and stability, without groups, curves and resampling: for simulations by the thousand
	Created    string     // a line for the report, such as the run's name
}

func (o Options) withDefaults() (Options, error) {
	if o.Polarity == "" {
		o.Polarity = data.AskRefuse
	}
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

// settle fills in what depends on the data: the wording, reading and judge of
// the headline where the data lack the default. Each departure is a warning.
func (o Options) settle(d *Dataset) (Options, []string, error) {
	var warnings []string
	judges := d.Judges()
	switch {
	case o.Judge != "":
		if !slices.Contains(judges, o.Judge) {
			return o, nil, fmt.Errorf("judge %q has no verdicts here; those that have: %v", o.Judge, judges)
		}
	case slices.Contains(judges, "rules"):
		o.Judge = "rules"
	case len(judges) > 0:
		o.Judge = judges[0]
		if o.Judge != "" {
			warnings = append(warnings, fmt.Sprintf("The judge of the headline, rules, gave no verdicts; %s is used.", o.Judge))
		}
	}
	if len(d.preds) == 0 {
		return o, append(warnings, "There are no predictions: only behaviour and its stability can be analysed."), nil
	}
	have := func(pick func(p predictionRow) string) []string {
		seen := map[string]bool{}
		for _, p := range d.preds {
			seen[pick(p)] = true
		}
		var list []string
		for s := range seen {
			list = append(list, s)
		}
		slices.Sort(list)
		return list
	}
	questions := have(func(p predictionRow) string { return d.labels.list[p.question] })
	if o.Question == "" {
		o.Question = "default"
		if !slices.Contains(questions, "default") {
			o.Question = questions[0]
			if o.Question != "" {
				warnings = append(warnings, fmt.Sprintf("The wording of the headline, default, was not asked; %s is used.", o.Question))
			}
		}
	} else if !slices.Contains(questions, o.Question) {
		return o, nil, fmt.Errorf("wording %q was not asked here; those that were: %v", o.Question, questions)
	}
	polarities := have(func(p predictionRow) string { return d.labels.list[p.polarity] })
	if !slices.Contains(polarities, o.Polarity) {
		if len(polarities) == 1 && polarities[0] == "" {
			o.Polarity = ""
		} else {
			return o, nil, fmt.Errorf("polarity %q was not asked here; those that were: %v", o.Polarity, polarities)
		}
	}
	readings := d.Readings()
	if o.Reading == "" {
		o.Reading = data.Grammar
		if !slices.Contains(readings, data.Grammar) {
			o.Reading = readings[0]
			warnings = append(warnings, fmt.Sprintf("The reading of the headline, grammar, was not taken; %s is used.", o.Reading))
		}
	} else if !slices.Contains(readings, o.Reading) {
		return o, nil, fmt.Errorf("reading %q was not taken here; those that were: %v", o.Reading, readings)
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
