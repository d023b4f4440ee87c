package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"demur/data"
)

// quantisation is how names of model files say what their weights were rounded to.
var quantisation = regexp.MustCompile(`(?i)(?:^|[-._ ])((?:i?q[2-8]|tq[12])(?:_[a-z0-9]+)*|b?f16|f32)(?:[-._ ]|$)`)

// settings are what a run was made with, by name and in words, as far as two runs
// of one model can differ in it: what comparisons call a factor.
func settings(m data.Manifest) map[string]string {
	s := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			s[name] = value
		}
	}
	if q := quantisation.FindStringSubmatch(m.Model.Name); q != nil {
		set("quantisation", strings.ToUpper(q[1]))
	}
	set("model file", short(m.Model.Digest))
	set("adapter", short(m.Model.Adapter))
	set("chat template", short(m.Model.TemplateHash))
	set("architecture", m.Model.Architecture)
	set("engine", strings.TrimSpace(m.Model.Engine+" "+m.Model.Version))
	set("request set", strings.TrimSpace(m.Requests.Name+" "+short(m.Requests.Digest)))
	for name, value := range m.Model.Plan {
		// Digests of libraries tell nothing that the engine's version does not.
		if strings.HasPrefix(name, "lib") || strings.HasSuffix(name, "sha256") || name == "model" {
			continue
		}
		set(strings.ReplaceAll(name, "_", " "), value)
	}
	var identity struct {
		Plan map[string]any `json:"plan"`
	}
	if json.Unmarshal(m.Plan, &identity) != nil {
		return s // a plan of another program says nothing here
	}
	for _, name := range []string{"system_message", "top_k", "top_p", "min_p", "max_tokens", "think", "strict", "predict_temperatures", "predict_max_tokens", "questions", "variants"} {
		if v, ok := identity.Plan[name]; ok {
			set(strings.ReplaceAll(name, "_", " "), clipped(fmt.Sprint(v)))
		}
	}
	return s
}

// short is enough of a digest to tell files apart.
func short(digest string) string {
	digest = strings.TrimPrefix(digest, "sha256:")
	return digest[:min(len(digest), 8)]
}

// clipped keeps a setting to a line.
func clipped(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return string(r)
}
