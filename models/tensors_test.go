package models_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"demur/models"
	"demur/models/phantom"
)

// The tensors of a phantom's file are its whole data, one beside the other, and its
// last norm has one positive weight for all.
func TestTensors(t *testing.T) {
	spec, err := phantom.Preset("default")
	if err != nil {
		t.Fatal(err)
	}
	m, err := phantom.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.WriteGGUF(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "phantom.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := models.Resolve(t.Context(), path, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := models.Tensors(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 + 9*spec.Blocks; len(all) != want {
		t.Fatalf("%d tensors, want %d", len(all), want)
	}
	end, norms := int64(0), 0
	for i, x := range all {
		rows := 1
		if len(x.Dimensions) == 2 {
			rows = x.Dimensions[1]
		}
		if x.RowBytes != 4*x.Dimensions[0] || i > 0 && x.Offset != (end+31)/32*32 {
			t.Errorf("%s: rows of %d bytes at %d, the tensor before ends at %d", x.Name, x.RowBytes, x.Offset, end)
		}
		end = x.Offset + int64(rows*x.RowBytes)
		if x.Name == "output_norm.weight" {
			norms++
			v := math.Float32frombits(binary.LittleEndian.Uint32(b.Bytes()[x.Offset:]))
			if first := math.Float32frombits(binary.LittleEndian.Uint32(b.Bytes()[x.Offset+4:])); v != first || v <= 0 {
				t.Errorf("the norm is %v, %v", v, first)
			}
		}
	}
	if end != int64(b.Len()) || norms != 1 {
		t.Errorf("the tensors end at %d of %d bytes, with %d last norms", end, b.Len(), norms)
	}
	if _, err := models.Tensors(models.File{Name: "none"}); err == nil {
		t.Error("a model without a file has tensors")
	}
}
