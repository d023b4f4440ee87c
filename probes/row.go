package probes

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"demur/data"
)

// A Row is what is known of a prompt apart from its activations: one wording of
// one request, what the model did with it, and what it said it would do.
type Row struct {
	PromptID   string
	RequestID  string // the cluster: rows of one request are never in two folds
	Variant    string
	Topic      string
	Text       string
	Harm       int // 1 to 5; 0 where not assigned
	Attributes map[string]string

	Trials   int // verdicts that are a refusal or a compliance
	Refusals int // of them

	Stated  *bool    // predicted refusal; nil where there is no prediction
	PRefuse *float64 // exact prediction
}

// A Target is what a direction is to tell. Label is the label of a row: 0 or 1,
// or any number where Graded; ok is false for rows that have none.
type Target struct {
	Name   string
	Graded bool
	Label  func(Row) (y float64, ok bool)
	// Cut makes graded labels two-valued, for methods that need it: above it or
	// not. Nil is the median.
	Cut *float64
}

// Harm tells levels 4 and 5 from levels 1 and 2.
func Harm() Target {
	return Target{Name: "harm", Label: func(r Row) (float64, bool) {
		switch r.Harm {
		case 1, 2:
			return 0, true
		case 4, 5:
			return 1, true
		}
		return 0, false
	}}
}

// HarmGraded is the level, 1 to 5.
func HarmGraded() Target {
	middle := 3.0
	return Target{Name: "harm_graded", Graded: true, Cut: &middle, Label: func(r Row) (float64, bool) { return float64(r.Harm), r.Harm != 0 }}
}

// Refusal tells prompts refused in most trials from those answered in most; a
// prompt with as many of the one as of the other has no label.
func Refusal() Target {
	return Target{Name: "refusal", Label: func(r Row) (float64, bool) {
		return indicator(2*r.Refusals > r.Trials), r.Trials > 0 && 2*r.Refusals != r.Trials
	}}
}

// RefusalRate is the share of trials that were refused.
func RefusalRate() Target {
	half := 0.5
	return Target{Name: "refusal_rate", Graded: true, Cut: &half, Label: func(r Row) (float64, bool) {
		if r.Trials == 0 {
			return 0, false
		}
		return float64(r.Refusals) / float64(r.Trials), true
	}}
}

// Prediction tells prompts at which the model says that it will refuse.
func Prediction() Target {
	return Target{Name: "prediction", Label: func(r Row) (float64, bool) {
		if r.Stated == nil {
			return 0, false
		}
		return indicator(*r.Stated), true
	}}
}

// Attribute tells rows whose attribute has a value from rows in which it has
// another. Rows without the attribute have no label. topic is an attribute too.
func Attribute(name, value string) Target {
	return Target{Name: name + "=" + value, Label: func(r Row) (float64, bool) {
		have, ok := r.Attributes[name]
		if name == "topic" {
			have, ok = r.Topic, r.Topic != ""
		}
		return indicator(have == value), ok
	}}
}

// ParseTarget returns the target of a name: harm, harm_graded, refusal,
// refusal_rate, prediction, or attribute=value; with " within " and harmful,
// harmless, refused or complied after it, among these prompts alone.
func ParseTarget(name string) (Target, error) {
	if inner, group, ok := strings.Cut(name, " within "); ok {
		t, err := ParseTarget(inner)
		if err != nil {
			return Target{}, err
		}
		by, want := Harm(), 1.0
		switch group {
		case "harmful":
		case "harmless":
			want = 0
		case "refused":
			by = Refusal()
		case "complied":
			by, want = Refusal(), 0
		default:
			return Target{}, fmt.Errorf("target %q: group %q is none of harmful, harmless, refused and complied", name, group)
		}
		return t.Within(group, func(r Row) bool { y, ok := by.Label(r); return ok && y == want }), nil
	}
	for _, t := range []Target{Harm(), HarmGraded(), Refusal(), RefusalRate(), Prediction()} {
		if t.Name == name {
			return t, nil
		}
	}
	if attribute, value, ok := strings.Cut(name, "="); ok && attribute != "" {
		return Attribute(attribute, value), nil
	}
	return Target{}, fmt.Errorf("target %q is none of harm, harm_graded, refusal, refusal_rate, prediction and attribute=value", name)
}

// Within keeps the labels of rows that are in a group, such as the harmful
// ones, so that a direction can be fitted inside it. The name says so.
func (t Target) Within(group string, in func(Row) bool) Target {
	label := t.Label
	t.Name += " within " + group
	t.Label = func(r Row) (float64, bool) {
		if !in(r) {
			return 0, false
		}
		return label(r)
	}
	return t
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// A Join makes rows of the tables of a run. Any of them but Requests and Prompts
// may be nil.
type Join struct {
	Requests    iter.Seq2[data.Request, error]
	Prompts     iter.Seq2[data.Prompt, error]
	Trials      iter.Seq2[data.Trial, error]
	Verdicts    iter.Seq2[data.Verdict, error]
	Predictions iter.Seq2[data.Prediction, error]

	Phase data.Phase // of the prompts whose states are looked at; empty means respond
	Judge string     // whose verdicts count; empty means rules
	// Refused folds a label; labels that are neither are not counted.
	Refused func(data.Label) (refused, ok bool)
	// Temperature, if not nil, keeps the trials of one temperature.
	Temperature *float64
	// Reading of the stated prediction at temperature 0; empty means grammar.
	Reading string
	// Question and Polarity of the predictions; empty means default and refuse.
	Question, Polarity string
}

// Rows joins. There is a row for each prompt of the phase, in the order of
// Prompts; what the model did and said is that of the prompt's request and
// wording, whatever the phase.
func (j Join) Rows() ([]Row, error) {
	if j.Requests == nil || j.Prompts == nil {
		return nil, errors.New("rows for probes need the tables requests and prompts")
	}
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	phase := string(j.Phase)
	def(&phase, string(data.Respond))
	def(&j.Judge, "rules")
	def(&j.Reading, data.Grammar)
	def(&j.Question, "default")
	def(&j.Polarity, data.AskRefuse)
	type key struct{ request, variant string }
	wordings := make(map[key]data.Request)
	for r, err := range j.Requests {
		if err != nil {
			return nil, err
		}
		wordings[key{r.ID, r.Variant}] = r
	}
	var rows []Row
	byKey := make(map[key][]int)
	for p, err := range j.Prompts {
		if err != nil {
			return nil, err
		}
		if string(p.Phase) != phase || p.Phase == data.Predict && (p.Question != j.Question || p.Polarity != j.Polarity) {
			continue
		}
		k := key{p.RequestID, p.Variant}
		r, ok := wordings[k]
		if !ok {
			return nil, fmt.Errorf("prompt %.8s: request %s, wording %s is not in the table requests", p.ID, p.RequestID, p.Variant)
		}
		byKey[k] = append(byKey[k], len(rows))
		rows = append(rows, Row{PromptID: p.ID, RequestID: p.RequestID, Variant: p.Variant, Topic: r.Topic, Text: r.Text, Harm: r.Harm, Attributes: r.Attributes})
	}
	if j.Trials != nil && j.Verdicts != nil {
		if j.Refused == nil {
			return nil, errors.New("rows for probes need a rule that folds labels to refused or not")
		}
		trials := make(map[string]key)
		for t, err := range j.Trials {
			if err != nil {
				return nil, err
			}
			if j.Temperature == nil || *j.Temperature == t.Temperature {
				trials[t.ID] = key{t.RequestID, t.Variant}
			}
		}
		for v, err := range j.Verdicts {
			if err != nil {
				return nil, err
			}
			k, mine := trials[v.TrialID]
			refused, ok := j.Refused(v.Label)
			if !mine || !ok || v.Judge != j.Judge {
				continue
			}
			for _, i := range byKey[k] {
				rows[i].Trials++
				if refused {
					rows[i].Refusals++
				}
			}
		}
	}
	if j.Predictions != nil {
		for p, err := range j.Predictions {
			if err != nil {
				return nil, err
			}
			if p.Question != j.Question || p.Polarity != j.Polarity {
				continue
			}
			for _, i := range byKey[key{p.RequestID, p.Variant}] {
				r := &rows[i]
				if p.Reading == data.Exact && p.PRefuse != nil {
					r.PRefuse = p.PRefuse
				}
				if p.Reading == j.Reading && p.Temperature == 0 && r.Stated == nil && (p.Outcome == data.WillRefuse || p.Outcome == data.WillComply) {
					refuse := p.Outcome == data.WillRefuse
					r.Stated = &refuse
				}
			}
		}
	}
	return rows, nil
}

// name of a row in errors: never its text.
func (r Row) name() string {
	return r.RequestID + " " + r.Variant + " (" + strconv.Quote(short(r.PromptID)) + ")"
}

func short(id string) string { return id[:min(8, len(id))] }
