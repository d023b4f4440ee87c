package phantom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Spec is everything that a phantom is made from: equal specs give equal
// bytes. Start from a Preset; the zero value is refused.
//
// The refusal component r of a request lies between 0 and 1. A phantom refuses
// with the odds exp(Slope·(r − Threshold)) at temperature 1.
type Spec struct {
	Width        int `json:"width"`         // of the residual stream, 64 to 128, a multiple of 16
	Blocks       int `json:"blocks"`        // 3 to 16
	HarmBlock    int `json:"harm_block"`    // writes the harm direction; at least 0
	RefusalBlock int `json:"refusal_block"` // writes the refusal direction; after HarmBlock, before the last block

	Seed     uint64  `json:"seed"`      // of the basis rotation
	WordSeed uint64  `json:"word_seed"` // of the triggers, the self-prediction's errors and the kinds of answers
	Noise    float64 `json:"noise"`     // size of what words bring along that means nothing, 0 to 2

	Angle       float64 `json:"angle"`       // between the harm and refusal directions, in degrees, 10 to 90; or 0: they are one, and harm is what makes it refuse
	Correlation float64 `json:"correlation"` // of a word's trigger with its harm, -1 to 1
	Threshold   float64 `json:"threshold"`   // refusal component at which refusing and complying are even
	Slope       float64 `json:"slope"`       // of the log odds of refusing, 0.01 to 60

	SelfWeight float64 `json:"self_weight"` // of the true refusal component in the self-prediction; 1 is undistorted, 0 is blind; -2 to 2
	SelfBias   float64 `json:"self_bias"`   // added to the component; above 0 it predicts refusal too readily
	SelfError  float64 `json:"self_error"`  // standard deviation of the per-word error, in units of the component, 0 to 2
	SelfSlope  float64 `json:"self_slope"`  // of the log odds of predicting refusal, 0.01 to 60

	ConfidenceBase float64 `json:"confidence_base"` // stated where the prediction is a coin's toss
	ConfidenceGain float64 `json:"confidence_gain"` // stated more per unit of the prediction's log odds, either way; -2 to 2
	DigitSharpness float64 `json:"digit_sharpness"` // log odds between the digit meant and the next one, 0.01 to 20

	Partial float64 `json:"partial"` // share of trigger words whose refusals are mostly partial
	Evade   float64 `json:"evade"`   // share of trigger words at which a free prediction is evaded: declined, or unreadable
	Deflect float64 `json:"deflect"` // share of trigger words whose refusals are mostly deflections: changes of the subject
}

// presets in the order in which they are listed.
var presetNames = []string{"default", "honest", "overrefuser", "unaware", "one-direction", "drifting"}

// PresetNames lists the presets.
func PresetNames() []string { return slices.Clone(presetNames) }

// halfStep returns the number nearest to x that lies halfway between two
// triggers, so that no request stands exactly at a threshold.
func halfStep(x float64) float64 {
	return (math.Floor(x*triggerLevels) + 0.5) / triggerLevels
}

// Preset returns a spec by name:
//
//   - default: knows its refusals fairly well, with a known bias and error
//   - honest: predicts itself perfectly, up to the sampling of its answers
//   - overrefuser: refuses most requests, harmless ones too
//   - unaware: its prediction carries no information about what it does
//   - one-direction: harm and refusal are one direction
//   - drifting: near its threshold on most requests, and so unstable
func Preset(name string) (Spec, error) {
	s := Spec{
		Width: 64, Blocks: 4, HarmBlock: 1, RefusalBlock: 2,
		Seed: 1, WordSeed: 1, Noise: 1,
		Angle: 60, Correlation: 0.75, Threshold: halfStep(0.6), Slope: 14,
		SelfWeight: 1, SelfBias: 0.06, SelfError: 0.2, SelfSlope: 14,
		ConfidenceBase: 2, ConfidenceGain: 0.6, DigitSharpness: 2,
		Partial: 0.15, Deflect: 0.1, Evade: 0.06,
	}
	switch name {
	case "default":
	case "honest":
		s.SelfBias, s.SelfError, s.Evade = 0, 0, 0
	case "overrefuser":
		s.Threshold = halfStep(0.2)
	case "unaware":
		s.SelfWeight, s.SelfBias, s.SelfError = 0, s.Threshold, 0.4
	case "one-direction":
		s.Angle, s.Correlation, s.Threshold, s.Slope, s.SelfSlope = 0, 1, 0.68, 12, 12
	case "drifting":
		s.Slope, s.SelfSlope = 4, 8
	default:
		return Spec{}, fmt.Errorf("phantom preset %q is not known; there are %s", name, strings.Join(presetNames, ", "))
	}
	return s, nil
}

// Hash returns the lowercase hex SHA-256 of the spec, of the format of the
// files and of the word lists: what can change a byte of the file.
func (s Spec) Hash() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("phantom: hash of a spec with a number that has no JSON form: %v", err))
	}
	h := sha256.New()
	fmt.Fprintf(h, "phantom %d\n%s\n", formatVersion, b)
	h.Write([]byte(lexiconFile))
	return hex.EncodeToString(h.Sum(nil))
}

// Validate returns an error if no phantom can be built from s.
func (s Spec) Validate() error {
	between := func(name string, v, lo, hi float64) error {
		if math.IsNaN(v) || v < lo || v > hi {
			return fmt.Errorf("phantom: %s is %v, it must be between %v and %v", name, v, lo, hi)
		}
		return nil
	}
	checks := []error{
		between("width", float64(s.Width), 64, 128),
		between("blocks", float64(s.Blocks), 3, 16),
		between("harm_block", float64(s.HarmBlock), 0, float64(s.Blocks-3)),
		between("refusal_block", float64(s.RefusalBlock), float64(s.HarmBlock+1), float64(s.Blocks-2)),
		between("noise", s.Noise, 0, 2),
		between("correlation", s.Correlation, -1, 1),
		between("threshold", s.Threshold, -10, 10),
		between("slope", s.Slope, 0.01, 60),
		between("self_weight", s.SelfWeight, -2, 2),
		between("self_bias", s.SelfBias, -10, 10),
		between("self_error", s.SelfError, 0, 2),
		between("self_slope", s.SelfSlope, 0.01, 60),
		between("confidence_base", s.ConfidenceBase, 0, 6),
		between("confidence_gain", s.ConfidenceGain, -2, 2),
		between("digit_sharpness", s.DigitSharpness, 0.01, 20),
		between("evade", s.Evade, 0, 1),
		between("partial", s.Partial, 0, 1),
		between("deflect", s.Deflect, 0, 1-s.Partial),
	}
	if s.Angle != 0 {
		checks = append(checks, between("angle (unless it is 0)", s.Angle, 10, 90))
	}
	if s.Width%16 != 0 {
		checks = append(checks, fmt.Errorf("phantom: width is %d, it must be a multiple of 16", s.Width))
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}
