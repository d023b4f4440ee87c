package models_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"demur/models"
)

func control() models.ControlVector {
	return models.ControlVector{
		Operation: models.ControlAdd, Hint: "llama", Target: "refusal", Method: "mean_difference", Anchor: "post",
		Model: "tiny", ModelDigest: "sha256:00", TemplateHash: "11", FittedOn: []string{"0123456789abcdef", "fedcba9876543210"},
		Layers: []models.ControlLayer{
			{Layer: 1, LearnedAt: 1, Values: []float32{1, -2, 0.5, 0, 3, 4, 5, 6}, Gap: 2.5, MeanNorm: 9},
			{Layer: 3, LearnedAt: 2, Values: []float32{0, 0, 0, 0, 0, 0, 0, 1}, Gap: 1, MeanNorm: 7},
		},
	}
}

func written(t testing.TB, c models.ControlVector) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := models.WriteControlVector(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readControl(b []byte, convention string) (models.ControlVector, error) {
	return models.ReadControlVector(bytes.NewReader(b), int64(len(b)), convention)
}

// What is written is read again, equal vectors give equal bytes, and the file is
// a whole one.
func TestControlVectorRoundTrip(t *testing.T) {
	for _, operation := range []string{models.ControlAdd, models.ControlProject} {
		c := control()
		c.Operation = operation
		if operation == models.ControlProject {
			c.Layers[0].Layer, c.Layers[0].LearnedAt = 0, 0
		}
		b := written(t, c)
		if !bytes.Equal(b, written(t, c)) {
			t.Error("two writings differ")
		}
		if err := models.CheckHeader(bytes.NewReader(b), int64(len(b))); err != nil {
			t.Error(err)
		}
		got, err := readControl(b, "")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s: wrote %+v, read %+v", operation, c, got)
		}
	}
}

// foreignControl is a file as another tool writes it: architecture, hint, count,
// and direction.N (llama.cpp, tools/cvector-generator; repeng, export_gguf).
func foreignControl(layers ...string) []byte {
	f := file{magic: "GGUF", version: 3, pairs: []pair{
		{"general.architecture", "controlvector"},
		{"controlvector.model_hint", "llama"},
		{"controlvector.layer_count", uint32(len(layers))},
	}}
	for i, name := range layers {
		f.tensors = append(f.tensors, tensor{name, []uint64{8}, 0, uint64(32 * i)})
	}
	b := f.bytes()
	for i := range layers {
		for j := range 8 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(10*i+j)))
		}
	}
	return b
}

// The same file means blocks that differ by one under the two conventions, and is
// not read without one.
func TestControlVectorConventions(t *testing.T) {
	b := foreignControl("direction.2", "direction.1")
	if _, err := readControl(b, ""); err == nil || !strings.Contains(err.Error(), "tools differ by one") {
		t.Errorf("without a convention: %v", err)
	}
	for convention, first := range map[string]int{models.Repeng: 1, models.Cvector: 0} {
		c, err := readControl(b, convention)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Layers) != 2 || c.Layers[0].Layer != first || c.Layers[1].Layer != first+1 || c.Layers[0].LearnedAt != first {
			t.Errorf("%s: layers %+v", convention, c.Layers)
		}
		if c.Layers[0].Values[1] != 11 || c.Layers[1].Values[7] != 7 {
			t.Errorf("%s: values %+v", convention, c.Layers)
		}
		if c.Operation != models.ControlAdd || c.Convention != convention {
			t.Errorf("%s: %+v", convention, c)
		}
	}
	if _, err := readControl(b, "vgel"); err == nil {
		t.Error("an unknown convention is taken")
	}
	if _, err := readControl(written(t, control()), models.Repeng); err == nil || !strings.Contains(err.Error(), "says itself") {
		t.Errorf("demur's own file under a convention: %v", err)
	}
}

func TestControlVectorsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(c *models.ControlVector){
		"no vector":         func(c *models.ControlVector) { c.Layers = nil },
		"after block 0":     func(c *models.ControlVector) { c.Layers[0].Layer = 0 },
		"order":             func(c *models.ControlVector) { c.Layers[0].Layer = 3 },
		"widths":            func(c *models.ControlVector) { c.Layers[0].Values = c.Layers[0].Values[1:] },
		"not finite":        func(c *models.ControlVector) { c.Layers[0].Values[2] = float32(math.Inf(1)) },
		"no operation":      func(c *models.ControlVector) { c.Operation = "" },
		"nothing to remove": func(c *models.ControlVector) { c.Operation = models.ControlProject; clear(c.Layers[1].Values) },
		"negative gap":      func(c *models.ControlVector) { c.Layers[1].Gap = -1 },
	} {
		c := control()
		change(&c)
		if err := models.WriteControlVector(new(bytes.Buffer), c); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
	whole := written(t, control())
	for name, b := range map[string][]byte{
		"cut":             whole[:len(whole)-1],
		"a model":         whole0(),
		"another name":    foreignControl("directions.1"),
		"number 0":        foreignControl("direction.0"),
		"number 01":       foreignControl("direction.01"),
		"two of one":      bytes.Replace(foreignControl("direction.1", "direction.2"), []byte("direction.2"), []byte("direction.1"), 1),
		"another version": bytes.Replace(whole, []byte("post_block"), []byte("pre__block"), 1),
	} {
		convention := models.Repeng
		if name == "another version" || name == "cut" {
			convention = ""
		}
		var e *models.Error
		if c, err := readControl(b, convention); !errors.As(err, &e) {
			t.Errorf("%s: read %+v, %v", name, c, err)
		}
	}
}

func whole0() []byte { return whole().bytes() }

func TestControlVectorFits(t *testing.T) {
	repeng, err := readControl(foreignControl("direction.1", "direction.3"), models.Repeng)
	if err != nil {
		t.Fatal(err)
	}
	own := control()
	for _, c := range []struct {
		name          string
		c             models.ControlVector
		blocks, width int
		digest, hash  string
		warnings      int
		err           string
	}{
		{"fits", own, 5, 8, "sha256:00", "11", 0, ""},
		{"last block", own, 4, 8, "sha256:00", "11", 1, ""},
		{"too few blocks", own, 3, 8, "sha256:00", "11", 0, "last is 2"},
		{"another width", own, 5, 9, "sha256:00", "11", 0, "width 8, the model's stream 9"},
		{"another model", own, 5, 8, "sha256:22", "11", 0, "was made for model tiny"},
		{"another template", own, 5, 8, "sha256:00", "22", 0, "another chat template"},
		{"repeng", repeng, 5, 8, "sha256:00", "11", 2, ""},
		{"repeng's last block", repeng, 4, 8, "sha256:00", "11", 0, "final norm"},
	} {
		warnings, err := c.c.Fits(c.blocks, c.width, c.digest, c.hash)
		switch {
		case c.err == "" && (err != nil || len(warnings) != c.warnings):
			t.Errorf("%s: %q, %v", c.name, warnings, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
}

// FuzzControlVector reads anything: it is an error, or a vector that can be
// written (unless it stands after block 0, where the format has no place) and is
// then read as the same.
func FuzzControlVector(f *testing.F) {
	project := control()
	project.Operation = models.ControlProject
	for _, b := range [][]byte{written(f, control()), written(f, project), foreignControl("direction.1", "direction.2"), whole0(), nil} {
		f.Add(b, "")
		f.Add(b, models.Cvector)
		f.Add(b, models.Repeng)
	}
	f.Fuzz(func(t *testing.T, b []byte, convention string) {
		c, err := readControl(b, convention)
		if err != nil {
			var e *models.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is of type %T", err, err)
			}
			return
		}
		c.Convention = ""
		var out bytes.Buffer
		if err := models.WriteControlVector(&out, c); err != nil {
			if c.Layers[0].Layer != 0 {
				t.Fatal(err)
			}
			return
		}
		again, err := readControl(out.Bytes(), "")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v", c, again)
		}
	})
}
