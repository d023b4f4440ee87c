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
//	w lock 3 t     a word, its harm 0 to 5, t where it carries a trigger, else -
//	p "?\"\n\n"    a piece of text that means nothing
//
//go:embed lexicon.txt
var lexiconFile string

// A Word is what a phantom knows of a word.
type Word struct {
	Text    string  `json:"text"` // lower case
	Harm    int     `json:"harm"` // 0 to 5
	Trigger float64 `json:"trigger"`
	Error   float64 `json:"error"` // what the self-prediction reads too much
	Kind    Kind    `json:"kind"`  // of the answers where this word decides

	carrier bool
}

// A Kind says how a request is answered in which a word decides.
type Kind int

// The kinds.
const (
	Plain      Kind = iota // refusals are full, compliances are full
	Partially              // three refusals of four are partial
	Deflecting             // three compliances of four are deflections
)

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
//	Correlation·z(harm) + √(1 − Correlation²)·noise
//
// and spread evenly over (0, 1), so that the requests' refusal components cover
// the whole range whatever the correlation. noise, the self-prediction's error
// and the kind depend on the word and on WordSeed alone.
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
			sum += float64(w.Harm)
			squares += float64(w.Harm) * float64(w.Harm)
		}
	}
	if len(carriers) == 0 {
		return words, pieces
	}
	n := float64(len(carriers))
	mean := sum / n
	spread := root(max(squares/n-mean*mean, 1e-12))
	rest := root(max(1-float64(s.Correlation*s.Correlation), 0))
	latent := make(map[string]float64, len(carriers))
	for _, i := range carriers {
		w := &words[i]
		r := rand.New(rand.NewPCG(s.WordSeed, wordKey(w.Text)))
		z := (float64(w.Harm) - mean) / spread
		latent[w.Text] = float64(s.Correlation*z) + float64(rest*gauss(r))
		w.Error = float64(s.SelfError * gauss(r))
		switch u := r.Float64(); {
		case u < s.Partial:
			w.Kind = Partially
		case u < s.Partial+s.Deflect:
			w.Kind = Deflecting
		}
	}
	slices.SortFunc(carriers, func(a, b int) int {
		return cmp.Or(cmp.Compare(latent[words[a].Text], latent[words[b].Text]), cmp.Compare(words[a].Text, words[b].Text))
	})
	for rank, i := range carriers {
		level := 1 + rank*(triggerLevels-1)/max(len(carriers), 1)
		if s.Angle == 0 {
			// One direction: what makes it refuse is the harm itself.
			level = words[i].Harm * triggerLevels / 5
		}
		words[i].Trigger = float64(level) / triggerLevels
	}
	return words, pieces
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
		if len(f) != 4 || f[0] != "w" || (f[3] != "t" && f[3] != "-") {
			return nil, nil, bad("want w, word, harm, t or -")
		}
		harm, err := strconv.Atoi(f[2])
		if err != nil || harm < 0 || harm > 5 {
			return nil, nil, bad("harm is not 0 to 5")
		}
		if seen["w"+f[1]] || strings.ToLower(f[1]) != f[1] {
			return nil, nil, bad("word is not in lower case, or there already")
		}
		seen["w"+f[1]] = true
		words = append(words, Word{Text: f[1], Harm: harm, carrier: f[3] == "t"})
	}
	return words, pieces, nil
}

// forms returns the pieces of text in which a word is met. A word that carries
// a value has the same one at the start of a text, inside quotes and with a
// capital; of others only the common form has a token.
func (w Word) forms() []string {
	if w.Harm == 0 && !w.carrier {
		return []string{" " + w.Text}
	}
	first, width := utf8.DecodeRuneInString(w.Text)
	capital := string(unicode.ToUpper(first)) + w.Text[width:]
	forms := []string{" " + w.Text, w.Text, `"` + w.Text}
	if capital != w.Text {
		forms = append(forms, " "+capital, capital, `"`+capital)
	}
	return forms
}
