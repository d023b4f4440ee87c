package probes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"demur/data"
	"demur/inference"
)

// Names of anchors. The template token at position −k has the name "post-k",
// so that post-1 is post.
const (
	Inst = "inst" // last token of the request
	Post = "post" // last token of the prompt
	Mean = "mean" // mean over the tokens of the request; position 0, token −1
	End  = "end"  // last token of the forced start of the answer, where there is one
)

// An Anchor is a position by name.
type Anchor struct {
	Name     string `json:"name"`
	Position int    `json:"position"` // from the end, −1 is the last token
	Token    int32  `json:"token"`
	Text     string `json:"text"` // of the token
}

// A Layout is where the request stands in a prompt. Positions count from the
// end of the prompt with its forced start of the answer.
type Layout struct {
	Tokens int `json:"tokens"`
	// First and Last are the positions of the first and last token of the request.
	// First is 0 where the first token merges with what the template writes before
	// it: such a prompt has all anchors but the mean.
	First int `json:"first"`
	Last  int `json:"last"`
	// Anchors are inst, post-L … post-2, post, and end where a start of the answer
	// is forced. A template without a token after the request has post at inst.
	Anchors []Anchor `json:"anchors"`

	ids    []int32
	pieces []string
}

// Anchor returns the anchor of that name; ok is false if there is none.
func (l Layout) Anchor(name string) (a Anchor, ok bool) {
	for _, a := range l.Anchors {
		if a.Name == name {
			return a, true
		}
	}
	return Anchor{}, false
}

// errNoAnchor is wrapped by the errors of prompts in which the request cannot
// be told from the template. Such a prompt has no anchors; others have.
var errNoAnchor = errors.New("the request's tokens cannot be told from the template's")

// dummies take the place of a request to find out what the template writes
// around it. They begin and end unlike each other, so that a token that merges
// with the template at one of them does not at another.
var dummies = [3]string{"Apples are red.", "7 + 2", "may I ask something"}

// A locator finds anchors. What the template writes before and after a request
// is found once for each layout, that is, for each conversation before it.
type locator struct {
	tokenizer inference.Tokenizer
	frames    map[string]frame
}

// A frame is what a template writes around the last message.
type frame struct {
	before, after []int32
	err           error
}

// locate finds the anchors of a prompt: the request is what stands between the
// template's tokens before and after it. Every prompt of the layout must have
// those after it. The request is the last message; in a prediction prompt, the
// whole question.
func (l *locator) locate(messages []data.Message, prefix string) (Layout, error) {
	if len(messages) == 0 {
		return Layout{}, errors.New("the prompt has no messages")
	}
	f := l.frame(messages)
	if f.err != nil {
		return Layout{}, f.err
	}
	ids, pieces, err := l.tokenizer.Tokenize(messages, prefix)
	if err != nil {
		return Layout{}, err
	}
	if len(ids) != len(pieces) {
		return Layout{}, fmt.Errorf("the tokenizer gave %d tokens and %d pieces", len(ids), len(pieces))
	}
	forced := 0
	if prefix != "" {
		bare, _, err := l.tokenizer.Tokenize(messages, "")
		if err != nil {
			return Layout{}, err
		}
		if len(ids) <= len(bare) || !slices.Equal(ids[:len(bare)], bare) {
			return Layout{}, fmt.Errorf("%w: the forced start of the answer merges with the prompt's last token", errNoAnchor)
		}
		forced = len(ids) - len(bare)
	}
	n := len(ids) - forced // of the prompt itself
	if n < len(f.after)+1 || !slices.Equal(ids[n-len(f.after):n], f.after) {
		return Layout{}, fmt.Errorf("%w: its last token merges with what stands after it (%s)", errNoAnchor, around(pieces, max(0, n-len(f.after))))
	}
	at := func(name string, i int) Anchor {
		return Anchor{Name: name, Position: i - len(ids), Token: ids[i], Text: pieces[i]}
	}
	last := n - len(f.after) - 1
	out := Layout{Tokens: len(ids), Last: last - len(ids), ids: ids, pieces: pieces}
	if n >= len(f.before) && slices.Equal(ids[:len(f.before)], f.before) {
		if last < len(f.before) {
			return Layout{}, fmt.Errorf("%w: the request is empty", errNoAnchor)
		}
		out.First = len(f.before) - len(ids)
	}
	out.Anchors = append(out.Anchors, at(Inst, last))
	for k := len(f.after); k > 1; k-- {
		out.Anchors = append(out.Anchors, at("post-"+strconv.Itoa(k), n-k))
	}
	out.Anchors = append(out.Anchors, at(Post, n-1))
	if forced > 0 {
		out.Anchors = append(out.Anchors, at(End, len(ids)-1))
	}
	return out, nil
}

// around shows the tokens at a boundary.
func around(pieces []string, i int) string {
	lo, hi := max(0, min(i-1, len(pieces))), min(len(pieces), i+2)
	var quoted []string
	for _, p := range pieces[lo:hi] {
		quoted = append(quoted, strconv.Quote(p))
	}
	return "tokens there: " + strings.Join(quoted, " ")
}

func (l *locator) frame(messages []data.Message) frame {
	last := len(messages) - 1
	var key strings.Builder
	for i, m := range messages {
		fmt.Fprintf(&key, "%q", m.Role)
		if i < last {
			fmt.Fprintf(&key, "%q", m.Content)
		}
	}
	if f, ok := l.frames[key.String()]; ok {
		return f
	}
	f := l.findFrame(messages)
	if l.frames == nil {
		l.frames = make(map[string]frame)
	}
	l.frames[key.String()] = f
	return f
}

// findFrame compares the tokens of the dummies in pairs. The longest common
// beginning and end of a pair are the template's, since at most one end of a
// pair merges; that they are no more than the template's is sure because no two
// dummies begin or end alike.
func (l *locator) findFrame(messages []data.Message) frame {
	var tokens [len(dummies)][]int32
	for i, text := range dummies {
		m := slices.Clone(messages)
		m[len(m)-1].Content = text
		ids, _, err := l.tokenizer.Tokenize(m, "")
		if err != nil {
			return frame{err: fmt.Errorf("render %q in place of the request: %w", text, err)}
		}
		tokens[i] = ids
	}
	var f frame
	for i := range tokens {
		for j := range i {
			a, b := tokens[i], tokens[j]
			n := 0
			for n < min(len(a), len(b)) && a[n] == b[n] {
				n++
			}
			if n == len(a) || n == len(b) {
				return frame{err: fmt.Errorf("%w: the chat template does not show the last message", errNoAnchor)}
			}
			if n > len(f.before) {
				f.before = a[:n]
			}
			n = 0
			for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
				n++
			}
			if n > len(f.after) {
				f.after = a[len(a)-n:]
			}
		}
	}
	return f
}

// Locate finds the anchors of a prompt. The request is its last message.
func Locate(t inference.Tokenizer, p data.Prompt, prefix string) (Layout, error) {
	l := locator{tokenizer: t}
	layout, err := l.locate(p.Messages, prefix)
	if err != nil {
		return Layout{}, fmt.Errorf("anchors of prompt %.8s (request %s): %w", p.ID, p.RequestID, err)
	}
	return layout, nil
}
