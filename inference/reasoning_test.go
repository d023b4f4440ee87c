package inference_test

import (
	"strings"
	"testing"

	"demur/inference"
)

func TestSplitReasoning(t *testing.T) {
	for _, test := range []struct{ name, text, reasoning, answer string }{
		{"none", " Knead the dough.\n", "", " Knead the dough.\n"},
		{"empty", "", "", ""},
		{"closed", "<think>\nFlour, water.\n</think>\n\nKnead it.", "Flour, water.", "Knead it."},
		{"space before", "\n <think>a</think>b", "a", "b"},
		{"empty reasoning", "<think>\n\n</think>\n\nKnead it.", "", "Knead it."},
		{"cut while thinking", "<think>Flour and", "Flour and", ""},
		{"opened by the template", "Flour.\n</think>\nKnead it.", "Flour.", "Knead it."},
		{"marks in the answer", "Write <think> and </think> around it.", "", "Write <think> and </think> around it."},
		{"second block stays", "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"},
		{"magistral", "[THINK]a[/THINK]b", "a", "b"},
		{"channels", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "a", "b"},
		{"kimi", "◁think▷a◁/think▷b", "a", "b"},
	} {
		reasoning, answer := inference.SplitReasoning(test.text)
		if reasoning != test.reasoning || answer != test.answer {
			t.Errorf("%s: got %q and %q, want %q and %q", test.name, reasoning, answer, test.reasoning, test.answer)
		}
	}
}

func TestOpenedReasoning(t *testing.T) {
	for rendered, want := range map[string]string{
		"<|im_start|>assistant\n":             "",
		"<|im_start|>assistant\n<think>\n":    "<think>",
		"<think>\n\n</think>\n\n":             "",
		"assistant[THINK]":                    "[THINK]",
		"":                                    "",
		"say <think> and then\nassistant: \n": "",
	} {
		if got := inference.OpenedReasoning(rendered); got != want {
			t.Errorf("%q: got %q, want %q", rendered, got, want)
		}
	}
	opened := inference.OpenedReasoning("assistant\n<think>\n")
	reasoning, answer := inference.SplitReasoning(opened + "Flour and")
	if reasoning != "Flour and" || answer != "" {
		t.Errorf("cut while thinking: got %q and %q", reasoning, answer)
	}
}

// Nothing that a model writes is lost but marks and white space at the borders.
func FuzzSplitReasoning(f *testing.F) {
	for _, s := range []string{"", "<think>a</think>b", "a</think>b", "<think>", "</think>", "[THINK]<think></think>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reasoning, answer := inference.SplitReasoning(text)
		i := strings.Index(text, reasoning)
		if i < 0 || !strings.Contains(text[i+len(reasoning):], answer) {
			t.Fatalf("%q: %q and %q are not parts of it, in order", text, reasoning, answer)
		}
		if reasoning == "" && !strings.Contains(text, answer) {
			t.Fatalf("%q: answer %q", text, answer)
		}
	})
}
