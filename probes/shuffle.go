package probes

import (
	"math/rand/v2"
	"slices"
	"strings"

	"demur/data"
)

// Shuffled returns a prompt with the words of its last message in another order,
// the same for equal prompts and seeds. Its states are the control for what a
// probe reads from the words alone, whatever their order: extract them, and give
// them to Options.Twins under the original's prompt id. White space between words
// becomes one blank.
func Shuffled(p data.Prompt, seed uint64) data.Prompt {
	if len(p.Messages) == 0 {
		return p
	}
	p.Messages = slices.Clone(p.Messages)
	last := &p.Messages[len(p.Messages)-1]
	words := strings.Fields(last.Content)
	h := uint64(14695981039346656037) // FNV-1a, so that prompts are shuffled unlike
	for i := range len(last.Content) {
		h = (h ^ uint64(last.Content[i])) * 1099511628211
	}
	rand.New(rand.NewPCG(seed, h)).Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	last.Content = strings.Join(words, " ")
	p.RenderedSHA256, p.Tokens = "", 0
	p.ID = data.PromptID(p.Messages)
	return p
}

// Renamed returns states under other prompt ids: those of twins under the ids of
// the prompts that they are twins of. Prompts that names lacks keep theirs.
func (s *States) Renamed(names map[string]string) *States {
	ids := slices.Clone(s.prompts)
	for i, id := range ids {
		if to, ok := names[id]; ok {
			ids[i] = to
		}
	}
	out := NewStates(s.width, ids, s.sites, s.values)
	out.positions, out.mixed = s.positions, s.mixed
	return out
}
