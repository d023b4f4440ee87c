package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A fault is a mistake in the instrument: in a file, old becomes new.
type fault struct {
	name, file, old, new string
	// test is "demo" where demur demo must find it, else package and test that must.
	test, run string
}

// faults are mistakes of a size that somebody might make, one in each part of
// the instrument. Those of probes stand with the probes.
var faults = []fault{
	{
		name: "sign of c", file: "analysis/counts.go", test: "demo",
		old: "return -(z(c.HitRate(k)) + z(c.FalseAlarmRate(k))) / 2",
		new: "return (z(c.HitRate(k)) + z(c.FalseAlarmRate(k))) / 2",
	},
	{
		name: "swapped cells", file: "analysis/dataset.go", test: "demo",
		old: "outcome = saysComply\n\tcase p.Outcome == data.WillRefuse:\n\t\toutcome = saysRefuse",
		new: "outcome = saysRefuse\n\tcase p.Outcome == data.WillRefuse:\n\t\toutcome = saysComply",
	},
	{
		name: "ignored seed", file: "inference/llamacpp/sampler.go", test: "demo",
		old: "b = binary.LittleEndian.AppendUint32(b, s.Seed)",
		new: "b = binary.LittleEndian.AppendUint32(b, 42)",
	},
	{
		name: "temperature not applied", file: "inference/llamacpp/sampler.go", test: "demo",
		old: "inv: 1 / temperature}",
		new: "inv: 1}",
	},
	{
		name: "verdict of the wrong trial", file: "protocol/classify.go", test: "demo",
		old: "for t, err := range trials {",
		new: "last := \"\"\n\t\t\tfor t, err := range trials {\n\t\t\t\tt.Text, last = last, t.Text",
	},
	{
		name: "unparsed counted as no", file: "analysis/dataset.go", test: "demo",
		old: "\tcase p.Outcome == data.Declined:\n\t\toutcome = declined\n\tcase p.Outcome == data.Unparsed:\n\t\toutcome = unparsed",
		new: "\tcase p.Outcome == data.Declined, p.Outcome == data.Unparsed:\n\t\toutcome = saysComply",
	},
	{
		name: "confidence off by one", file: "analysis/calibration.go", test: "demo",
		old: "func Fifths(k float64) float64 { return k / 5 }",
		new: "func Fifths(k float64) float64 { return (k - 1) / 5 }",
	},
	{
		name: "strict fold under the name of lenient", file: "analysis/fold.go", test: "demo",
		old: "return f == Lenient, true",
		new: "return f == Strict, true",
	},
	{
		name: "P(refuse) is that of false", file: "protocol/exact.go", test: "demo",
		old: "r.PRefuse = trueShare\n",
		new: "r.PRefuse = 1 - trueShare\n",
	},
	{
		name: "interval over trials", file: "analysis/interval.go", test: "./analysis", run: "TestCoverage",
		old: "r.variance = s2 / (b * b) * m / (m - 1)",
		new: "r.variance = r.rate * (1 - r.rate) / b",
	},
	{
		name: "one draw for all temperatures", file: "inference/llamacpp/sampler.go", test: "./inference/llamacpp", run: "Uniform|Sampler|Independent",
		old: "b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Temperature+0)) // −0 is 0",
		new: "",
	},
}

// TestSeededFaultsFit holds that each fault still changes one place of the code.
func TestSeededFaultsFit(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		f.overlay(t, root)
	}
}

// TestSeededFaultsAreCaught builds demur with each fault in it and runs what must
// find it. The unharmed build must pass.
func TestSeededFaultsAreCaught(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		t.Skip("builds demur ten times and runs ten demos; set DEMUR_LONG=1")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if out, code := demoWith(t, root, ""); code != 0 {
		t.Fatalf("the unharmed instrument: exit code %d\n%s", code, out)
	}
	byDemo := 0
	for _, f := range faults {
		overlay := f.overlay(t, root)
		if f.test != "demo" {
			c := exec.Command("go", "test", "-overlay", overlay, "-run", f.run, f.test)
			c.Dir = root
			if out, err := c.CombinedOutput(); err == nil {
				t.Errorf("%s: %s %s does not find it\n%s", f.name, f.test, f.run, out)
			} else {
				t.Logf("%-40s caught by %s", f.name, f.test)
			}
			continue
		}
		out, code := demoWith(t, root, overlay)
		if code != exitIntegrity {
			t.Errorf("%s: the demo ends with %d, want %d\n%s", f.name, code, exitIntegrity, out)
			continue
		}
		byDemo++
		t.Logf("%-40s caught by demur demo: %s", f.name, offRows(out))
	}
	if byDemo < 7 {
		t.Errorf("the demo finds %d faults, want at least 7", byDemo)
	}
}

// overlay writes the faulty file and returns the overlay for the go command.
func (f fault) overlay(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, f.file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), f.old); n != 1 {
		t.Fatalf("%s: what it replaces stands %d times in %s, want once", f.name, n, f.file)
	}
	dir := t.TempDir()
	faulty := filepath.Join(dir, "faulty.go")
	if err := os.WriteFile(faulty, []byte(strings.Replace(string(b), f.old, f.new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{path: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, spec, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// demoWith builds demur, with an overlay if there is one, and runs its demo.
func demoWith(t *testing.T, root, overlay string) (out string, code int) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "demur")
	args := []string{"build", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	build := exec.Command("go", append(args, "./cmd/demur")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	demo := exec.Command(binary, "demo", "--json", "--quiet")
	b, err := demo.Output()
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			t.Fatal(err)
		}
		return string(b), exit.ExitCode()
	}
	return string(b), 0
}

// offRows names the rows that are not ok.
func offRows(out string) string {
	var rows []comparison
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return err.Error()
	}
	var off []string
	for _, r := range rows {
		if !r.OK {
			off = append(off, r.Quantity)
		}
	}
	return fmt.Sprint(off)
}
