package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed is the shape of the project: what each package may import of demur,
// and which third-party modules live in it alone. gonum, the numerical library of
// the field, serves two.
var allowed = map[string]struct{ demur, others []string }{
	"data":                 {nil, []string{"github.com/parquet-go/parquet-go", "github.com/klauspost/compress", "golang.org/x/sys"}},
	"models":               {nil, []string{"github.com/gpustack/gguf-parser-go"}},
	"models/phantom":       {nil, nil},
	"inference":            {[]string{"data"}, nil},
	"inference/llamacpp":   {[]string{"data", "inference", "models"}, []string{"github.com/hybridgroup/yzma", "github.com/ebitengine/purego", "github.com/jupiterrider/ffi", "github.com/ardanlabs/jinja", "golang.org/x/sys"}},
	"inference/ollama":     {[]string{"data", "inference"}, []string{"github.com/ollama/ollama"}},
	"inference/worker":     {[]string{"data", "inference"}, []string{"golang.org/x/sys"}},
	"inference/enginetest": {[]string{"data", "inference"}, nil},
	"protocol":             {[]string{"data", "inference"}, []string{"go.yaml.in/yaml/v3"}},
	"probes":               {[]string{"data", "inference"}, []string{"gonum.org/v1/gonum"}},
	"analysis":             {[]string{"data"}, []string{"gonum.org/v1/gonum", "gonum.org/v1/plot"}},
	"cmd/demur":            {[]string{"*"}, []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/schollz/progressbar/v3", "golang.org/x/term"}},
}

// TestImportsKeepTheShape walks the imports of all code that is not a test.
func TestImportsKeepTheShape(t *testing.T) {
	root := "../.."
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && name != "." || name == "tools" || name == "dist" || strings.HasSuffix(name, "/internal") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(name))
		rule, known := allowed[pkg]
		if !known {
			t.Errorf("package %s is not in the table of the design", pkg)
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			seen++
			own, isOwn := strings.CutPrefix(imported, "demur/")
			switch {
			case isOwn:
				if !strings.HasPrefix(own, pkg+"/internal") && !slices.Contains(rule.demur, own) && !slices.Contains(rule.demur, "*") {
					t.Errorf("%s imports demur/%s", name, own)
				}
			case strings.Contains(strings.Split(imported, "/")[0], "."):
				if !slices.ContainsFunc(rule.others, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }) {
					t.Errorf("%s imports %s, which does not belong there", name, imported)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 100 {
		t.Errorf("%d imports were seen: the walk looks at nothing", seen)
	}
}
