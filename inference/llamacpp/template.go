package llamacpp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"demur/data"
)

// ErrNoTemplate is the kind of the error for a model file without a chat
// template. There is no fallback: a guessed template gives numbers of another
// model.
var ErrNoTemplate = errors.New("the model has no chat template")

// frozenDate is what a template that asks for today's date is told, for a prompt
// must not change overnight.
var frozenDate = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// A chatTemplate is a model's own chat template, in Jinja.
type chatTemplate struct {
	source   string
	compiled *jinja.Template
	bos, eos string
	think    string // on, off or unset ("")
}

func newChatTemplate(source, bos, eos, think string) (*chatTemplate, error) {
	prepared, err := prepare(source)
	if err != nil {
		return nil, fmt.Errorf("read the chat template: %w", err)
	}
	compiled, err := jinja.Compile(prepared)
	if err != nil {
		return nil, fmt.Errorf("read the chat template: %w", err)
	}
	t := &chatTemplate{source: source, compiled: compiled, bos: bos, eos: eos, think: think}
	// A template without an end is found here, not by each prompt in turn. Any
	// other complaint may be about this very message.
	if _, err := t.render([]data.Message{{Role: "user", Content: "Hello"}}); errors.Is(err, errRunaway) {
		return nil, err
	}
	return t, nil
}

func (t *chatTemplate) digest() string {
	sum := sha256.Sum256([]byte(t.source))
	return hex.EncodeToString(sum[:])
}

// render returns what the model is shown for messages, with the start of its
// answer added.
func (t *chatTemplate) render(messages []data.Message) (text string, err error) {
	defer func() {
		// A template is text from outside, and its interpreter is not ours.
		if r := recover(); r != nil {
			text, err = "", fmt.Errorf("chat template: %v", r)
		}
	}()
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	vars := map[string]jinja.Value{
		"messages":              jinja.FromGoValue(list),
		"add_generation_prompt": jinja.NewBool(true),
		"bos_token":             jinja.NewString(t.bos),
		"eos_token":             jinja.NewString(t.eos),
		"strftime_now":          jinja.NewCallable("strftime_now", strftimeNow),
		"range":                 jinja.NewCallable("range", boundedRange),
	}
	b := newBudget()
	for name, f := range map[string]func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error){
		"demur_step": b.step, "demur_enter": b.enter, "demur_leave": b.leave,
	} {
		vars[name] = jinja.NewCallable(name, f)
	}
	defer b.watch()()
	if t.think != "" {
		vars["enable_thinking"] = jinja.NewBool(t.think == "on")
	}
	text, err = t.compiled.RenderValues(vars)
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	if len(text) > maxTemplateText {
		return "", fmt.Errorf("chat template: %d bytes of text: %w", len(text), errRunaway)
	}
	return text, nil
}

// strftimeNow is the function of that name that Transformers gives to chat
// templates, at the frozen date.
func strftimeNow(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	format := "%Y-%m-%d"
	if len(args) > 0 && args[0].IsString() {
		format = args[0].AsString()
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch format[i] {
		case 'Y':
			b.WriteString(frozenDate.Format("2006"))
		case 'y':
			b.WriteString(frozenDate.Format("06"))
		case 'm':
			b.WriteString(frozenDate.Format("01"))
		case 'd':
			b.WriteString(frozenDate.Format("02"))
		case 'e':
			b.WriteString(frozenDate.Format("_2"))
		case 'B':
			b.WriteString(frozenDate.Format("January"))
		case 'b', 'h':
			b.WriteString(frozenDate.Format("Jan"))
		case 'A':
			b.WriteString(frozenDate.Format("Monday"))
		case 'a':
			b.WriteString(frozenDate.Format("Mon"))
		case 'H':
			b.WriteString(frozenDate.Format("15"))
		case 'I':
			b.WriteString(frozenDate.Format("03"))
		case 'M':
			b.WriteString(frozenDate.Format("04"))
		case 'S':
			b.WriteString(frozenDate.Format("05"))
		case 'p':
			b.WriteString(frozenDate.Format("PM"))
		case 'Z':
			b.WriteString("UTC")
		case 'z':
			b.WriteString("+0000")
		case '-': // %-d and its like: without the leading zero
			if i+1 < len(format) {
				i++
				switch format[i] {
				case 'd':
					b.WriteString(frozenDate.Format("2"))
				case 'm':
					b.WriteString(frozenDate.Format("1"))
				default:
					return jinja.Undefined(), fmt.Errorf("strftime_now: %%-%c is not known", format[i])
				}
			}
		case '%':
			b.WriteByte('%')
		default:
			return jinja.Undefined(), fmt.Errorf("strftime_now: %%%c is not known", format[i])
		}
	}
	return jinja.NewString(b.String()), nil
}
