package data

import (
	"maps"
	"strings"
)

// flatten turns a row of a tool's sample log into columns with the names of
// ImportFields. Rows of other kinds stay as they are.
func flatten(row map[string]any) map[string]any {
	switch {
	case has(row, "doc", "resps"):
		return flattenHarness(row)
	case has(row, "input", "output", "epoch"):
		return flattenInspect(row)
	}
	return row
}

func has(row map[string]any, names ...string) bool {
	for _, name := range names {
		if _, ok := row[name]; !ok {
			return false
		}
	}
	return true
}

// flattenHarness reads a line of lm-evaluation-harness's samples_*.jsonl:
// doc_id, doc (the row of the data set), arguments (what was asked), resps
// (a list of repeats for each request), filtered_resps. The first response
// counts; a file with repeats has one line each.
func flattenHarness(row map[string]any) map[string]any {
	flat := map[string]any{"request_id": row["doc_id"]}
	if doc, ok := row["doc"].(map[string]any); ok {
		for _, name := range []string{"topic", "category", "harm", "harm_level", "prompt", "question", "text", "behavior"} {
			if v, ok := doc[name]; ok {
				flat[name] = v
			}
		}
	}
	if asked := firstText(row["arguments"]); asked != "" {
		flat["text"] = asked
	}
	flat["response"] = firstText(row["resps"])
	if s := firstText(row["filtered_resps"]); s != "" {
		flat["response"] = s
	}
	return flat
}

// firstText returns the first text within nested lists and objects; objects of
// arguments name theirs arg_0 and gen_args_0.
func firstText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		if len(v) > 0 {
			return firstText(v[0])
		}
	case map[string]any:
		for _, name := range []string{"gen_args_0", "arg_0"} {
			if s := firstText(v[name]); s != "" {
				return s
			}
		}
	}
	return ""
}

// flattenInspect reads a sample of an Inspect log: id, epoch, input (a text, or
// chat messages), output (with the completion in choices), metadata, error.
func flattenInspect(row map[string]any) map[string]any {
	flat := map[string]any{"request_id": row["id"], "seed": row["epoch"]}
	if meta, ok := row["metadata"].(map[string]any); ok {
		maps.Copy(flat, meta)
		flat["request_id"], flat["seed"] = row["id"], row["epoch"]
	}
	switch input := row["input"].(type) {
	case string:
		flat["text"] = input
	case []any:
		for _, e := range input {
			if m, ok := e.(map[string]any); ok && m["role"] == "user" {
				flat["text"] = contentText(m["content"])
			}
		}
	}
	if out, ok := row["output"].(map[string]any); ok {
		flat["model"] = out["model"]
		if choices, ok := out["choices"].([]any); ok && len(choices) > 0 {
			if choice, ok := choices[0].(map[string]any); ok {
				if m, ok := choice["message"].(map[string]any); ok {
					flat["response"] = contentText(m["content"])
				}
			}
		}
		if s, ok := out["completion"].(string); ok && s != "" {
			flat["response"] = s
		}
	}
	if e, ok := row["error"].(map[string]any); ok {
		flat["error"] = e["message"]
	}
	return flat
}

// contentText is the text of a message's content: itself, or its text parts.
func contentText(v any) string {
	parts, ok := v.([]any)
	if !ok {
		return cell(v)
	}
	var texts []string
	for _, e := range parts {
		if p, ok := e.(map[string]any); ok && p["type"] == "text" {
			texts = append(texts, cell(p["text"]))
		}
	}
	return strings.Join(texts, "\n")
}
