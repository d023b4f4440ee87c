package inference

import "strings"

// reasoningTags are the marks that model families put around their reasoning.
//
// Sources: the chat templates of DeepSeek-R1 and Qwen3 (<think>), Granite and
// others (<thinking>, <reasoning>), Mistral's Magistral ([THINK]), Seed-OSS
// (<seed:think>), Kimi-VL (◁think▷), Command A Reasoning (START_THINKING),
// gpt-oss (channels).
var reasoningTags = [...]struct{ open, end string }{
	{"<think>", "</think>"},
	{"<thinking>", "</thinking>"},
	{"<reasoning>", "</reasoning>"},
	{"[THINK]", "[/THINK]"},
	{"<seed:think>", "</seed:think>"},
	{"◁think▷", "◁/think▷"},
	{"<|START_THINKING|>", "<|END_THINKING|>"},
	{"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"},
}

// SplitReasoning parts what a model wrote into its reasoning and its answer.
// The reasoning is what stands between an opening mark at the very start of the
// text and the closing mark; where the closing mark is missing (the answer was
// cut while the model still thought) all is reasoning and the answer is empty.
// A text with a closing mark alone was opened by the chat template, and begins
// with reasoning. Marks further on belong to the answer. Without reasoning the
// answer is text, unchanged; else white space around both parts is left out.
func SplitReasoning(text string) (reasoning, answer string) {
	start := strings.TrimLeft(text, " \t\r\n")
	for _, tag := range reasoningTags {
		if rest, ok := strings.CutPrefix(start, tag.open); ok {
			reasoning, answer, _ = strings.Cut(rest, tag.end)
			return trim(reasoning), trim(answer)
		}
	}
	for _, tag := range reasoningTags {
		before, after, ok := strings.Cut(text, tag.end)
		if ok && !strings.Contains(before, tag.open) {
			return trim(before), trim(after)
		}
	}
	return "", text
}

// OpenedReasoning returns the opening mark that a rendered prompt ends with, or
// "". Some chat templates open the reasoning themselves; what the model then
// writes is to be split with that mark put before it, or a text that was cut
// while the model still thought would be taken for an answer.
func OpenedReasoning(rendered string) string {
	rendered = strings.TrimRight(rendered, " \t\r\n")
	for _, tag := range reasoningTags {
		if strings.HasSuffix(rendered, tag.open) {
			return tag.open
		}
	}
	return ""
}

func trim(s string) string { return strings.Trim(s, " \t\r\n") }
