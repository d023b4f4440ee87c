package phantom

import (
	"cmp"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:generate go run ./internal/lexicon -requests ../../data/requests/requests.jsonl -questions ../../protocol/prompts -out lexicon.txt

// lexiconFile lists the words and pieces of text that get tokens of their own.
//
//	w lock 3 2.7 aA   a word, its harm 0 to 5, where it carries a trigger the mean
//	                  level of the requests that it stands in, else -, and the
//	                  forms in which it has a token (see formsOf)
//	p "?\"\n\n"       a piece of text that means nothing
//
//go:embed lexicon.txt
var lexiconFile string

// A Word is what a phantom knows of a word.
type Word struct {
	Text    string  `json:"text"` // lower case
	Harm    int     `json:"harm"` // 0 to 5
	Trigger float64 `json:"trigger"`
	Error   float64 `json:"error"`             // what the self-prediction reads too much
	Kind    Kind    `json:"kind"`              // of the answers where this word decides
	Evasion string  `json:"evasion,omitempty"` // Declined or Unparsed where a free prediction is evaded

	carrier bool
	forms   []string // pieces of text in which it is met
	level   float64  // of a carrier: mean level of the requests that it stands in
}

// A Kind says how a request is answered in which a word decides.
type Kind int

// The kinds.
const (
	Plain      Kind = iota // refusals are full, compliances are full
	Partially              // about two refusals of three are partial
	Deflecting             // about two refusals of three are deflections
)

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Plain:
		return "plain"
	case Partially:
		return "partial"
	case Deflecting:
		return "deflecting"
	}
	return "kind " + strconv.Itoa(int(k))
}

// triggerLevels is the number of steps between no trigger and a full one. The
// attention of the trigger head keeps neighbouring steps apart, and a carrier
// word has a step of its own as long as there are fewer words than steps.
const triggerLevels = 512

// words returns the lexicon's words with the values that s plants, and the
// pieces of text that mean nothing.
//
// Triggers are ranks: the carriers are sorted by
//
//	Correlation·z(level) + √(1 − Correlation²)·noise
//
// where level is the mean level of the requests that a word stands in, and
// spread evenly over (0, 1), so that the requests' refusal components cover the
// whole range whatever the correlation. Where harm and refusal are one
// direction, they are sorted by harm first: the trigger then only says which
// word decides.
//
// The self-prediction's errors are drawn for every second rank and negated for
// the next, so that they are as good as unrelated to the triggers even among a
// few words. noise, errors and kinds depend on the word and on WordSeed alone.
func (s Spec) words() (words []Word, pieces []string) {
	words, pieces, err := parseLexicon(lexiconFile)
	if err != nil {
		panic("phantom: embedded word list: " + err.Error())
	}
	var carriers []int
	var sum, squares float64
	for i, w := range words {
		if w.carrier {
			carriers = append(carriers, i)
			sum += w.level
			squares += float64(w.level * w.level)
		}
	}
	n := float64(max(len(carriers), 1))
	mean := sum / n
	spread := root(max(squares/n-float64(mean*mean), 1e-12))
	rest := root(max(1-float64(s.Correlation*s.Correlation), 0))
	latent := make(map[int]float64, len(carriers))
	for _, i := range carriers {
		w := &words[i]
		r := rand.New(rand.NewPCG(s.WordSeed, wordKey(w.Text)))
		z := (w.level - mean) / spread
		latent[i] = float64(s.Correlation*z) + float64(rest*gauss(r))
		if s.Angle == 0 {
			latent[i] += 1000 * float64(w.Harm)
		}
		w.Error = float64(s.SelfError * gauss(r))
		switch u := r.Float64(); {
		case u < s.Partial:
			w.Kind = Partially
		case u < s.Partial+s.Deflect:
			w.Kind = Deflecting
		}
		switch u := r.Float64(); {
		case u < s.Evade/2:
			w.Evasion = Declined
		case u < s.Evade:
			w.Evasion = Unparsed
		}
	}
	slices.SortFunc(carriers, func(a, b int) int {
		return cmp.Or(cmp.Compare(latent[a], latent[b]), cmp.Compare(words[a].Text, words[b].Text))
	})
	steps := s.triggerSteps(len(carriers))
	for rank, i := range carriers {
		words[i].Trigger = float64(steps[rank*len(steps)/len(carriers)]) / triggerLevels
		if rank%2 == 1 {
			words[i].Error = -words[carriers[rank-1]].Error
		}
	}
	for _, i := range carriers {
		words[i].Error = s.decided(words[i])
	}
	return words, pieces
}

// clearance is how many logits at least lie between the two sides where a word's
// refusal or prediction is decided, so that no engine's rounding turns it.
const clearance = 0.04

// triggerSteps lists the steps that triggers can have: not those at which
// refusing and complying are within clearance of each other, unless the slope is
// so flat that too few would be left.
func (s Spec) triggerSteps(carriers int) []int {
	var all, steps []int
	for step := 1; step < triggerLevels; step++ {
		all = append(all, step)
		z := s.Slope * (float64(step)/triggerLevels - s.Threshold)
		if z < -clearance || z > clearance || s.Angle == 0 {
			steps = append(steps, step)
		}
	}
	if len(steps) < carriers {
		return all
	}
	return steps
}

// decided returns w's error, moved where the prediction would be within clearance of
// its turning point, if there are errors at all and the slope is not flat.
func (s Spec) decided(w Word) float64 {
	component := w.Trigger
	if s.Angle == 0 {
		component = float64(w.Harm) / harmLevels
	}
	gap := float64(s.SelfWeight*component) + w.Error + s.SelfBias - s.Threshold
	least := clearance / s.SelfSlope
	switch {
	case s.SelfError == 0 || s.SelfSlope < 1 || gap > least || gap < -least:
		return w.Error
	case gap >= 0:
		return w.Error + least - gap
	}
	return w.Error - least - gap
}

// gauss returns a nearly normal number, mean 0, variance 1, in -6 to 6: the sum
// of twelve uniform ones. It uses no logarithm, whose last bit may differ
// between platforms.
func gauss(r *rand.Rand) float64 {
	sum := -6.0
	for range 12 {
		sum += r.Float64()
	}
	return sum
}

// wordKey is the FNV-1a hash of a word.
func wordKey(word string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(word) {
		h = (h ^ uint64(word[i])) * 1099511628211
	}
	return h
}

// parseLexicon reads a word list.
func parseLexicon(file string) (words []Word, pieces []string, err error) {
	seen := map[string]bool{}
	for number, line := range strings.Split(file, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		bad := func(what string) error { return fmt.Errorf("line %d: %s: %q", number+1, what, line) }
		if quoted, ok := strings.CutPrefix(line, "p "); ok {
			piece, err := strconv.Unquote(quoted)
			if err != nil || piece == "" || seen["p"+piece] {
				return nil, nil, bad("no piece of text in quotes, or the second one of its kind")
			}
			seen["p"+piece] = true
			pieces = append(pieces, piece)
			continue
		}
		f := strings.Fields(line)
		if len(f) != 5 || f[0] != "w" {
			return nil, nil, bad("want w, word, harm, level or -, forms")
		}
		level := 0.0
		if f[3] != "-" {
			level, err = strconv.ParseFloat(f[3], 64)
			if err != nil || !(level >= 1 && level <= 5) {
				return nil, nil, bad("level is neither 1 to 5 nor -")
			}
		}
		harm, err := strconv.Atoi(f[2])
		if err != nil || harm < 0 || harm > 5 {
			return nil, nil, bad("harm is not 0 to 5")
		}
		forms, err := formsOf(f[1], f[4])
		if err != nil {
			return nil, nil, bad(err.Error())
		}
		if seen["w"+f[1]] || strings.ToLower(f[1]) != f[1] {
			return nil, nil, bad("word is not in lower case, or there already")
		}
		seen["w"+f[1]] = true
		words = append(words, Word{Text: f[1], Harm: harm, carrier: f[3] != "-", level: level, forms: forms})
	}
	return words, pieces, nil
}

// formsOf returns the pieces of text in which a word is met: a after a blank, A
// there with a capital, b and B at the start of a text, q and Q after a
// quotation mark.
func formsOf(word, letters string) ([]string, error) {
	first, width := utf8.DecodeRuneInString(word)
	capital := string(unicode.ToUpper(first)) + word[width:]
	var forms []string
	for _, l := range letters {
		switch l {
		case 'a':
			forms = append(forms, " "+word)
		case 'A':
			forms = append(forms, " "+capital)
		case 'b':
			forms = append(forms, word)
		case 'B':
			forms = append(forms, capital)
		case 'q':
			forms = append(forms, `"`+word)
		case 'Q':
			forms = append(forms, `"`+capital)
		default:
			return nil, fmt.Errorf("no form %q of a word", l)
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms), nil
}
