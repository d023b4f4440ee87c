package models

import "strings"

// An Entry is a model of the catalogue: a small model that tools/models.sh can
// fetch and that demur's documents and tests use.
type Entry struct {
	Name    string `json:"name"`   // short name
	File    string `json:"file"`   // in the models folder
	SHA256  string `json:"sha256"` // of the file
	License string `json:"license"`
	About   string `json:"about"`
}

// Catalogue returns the models that demur knows by a short name.
func Catalogue() []Entry {
	return []Entry{
		{
			Name: "smollm2-135m", File: "SmolLM2-135M-Instruct.Q4_1.gguf",
			SHA256:  smollm2SHA256,
			License: "Apache-2.0",
			About:   "SmolLM2-135M-Instruct, Q4_1, 98 MB: a small instruction-tuned model of the llama architecture that hardly ever refuses",
		},
		{
			Name: "gemma3-270m", File: "gemma-3-270m.Q4_K_M.gguf",
			SHA256:  gemma3SHA256,
			License: "Gemma terms of use",
			About:   "Gemma 3 270M, base model, Q4_K_M, 253 MB: a second architecture, no chat template",
		},
	}
}

// Digests of the catalogue's files; tools/models.sh holds the same ones.
const (
	smollm2SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
	gemma3SHA256  = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
)

func lookUp(name string) (Entry, bool) {
	for _, e := range Catalogue() {
		if strings.EqualFold(e.Name, name) {
			return e, true
		}
	}
	return Entry{}, false
}
