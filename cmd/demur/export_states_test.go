package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"demur/data"
)

// statesFolder writes activations of three prompts at two layers, of which the
// last prompt lacks one, and returns the values of the others by array.
func statesFolder(t *testing.T) (dir string, prompts []string, want map[string][]float32) {
	t.Helper()
	// Its name would be a pattern that does not match it.
	dir, want = filepath.Join(t.TempDir(), "s[t]*tes"), map[string][]float32{}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var all []data.Prompt
	for i, id := range []string{"r1", "r2", "r3"} {
		all = append(all, data.Prompt{ID: data.Digest(i), RequestID: id, Variant: data.Base, Phase: data.Respond})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(data.WriteTable(dir, data.Prompts, sequence(all)))
	for _, layer := range []int{-1, 12} {
		var rows []data.Activation
		for i, p := range all {
			for k, anchor := range []string{"inst", "post"} {
				if i == 2 && layer == 12 && k == 1 {
					continue
				}
				row := data.Activation{PromptID: p.ID, Layer: layer, Anchor: anchor, Position: k - 2}
				for c := range 5 {
					row.Values = append(row.Values, float32(100*i+10*k+c)/3+float32(layer))
				}
				if i < 2 {
					name := strings.TrimPrefix(data.LayerTable(layer), "activations/") + "." + anchor
					want[name] = append(want[name], row.Values...)
				}
				rows = append(rows, row)
			}
		}
		must(data.WriteLayer(dir, layer, data.LayerOptions{}, sequence(rows)))
	}
	return dir, []string{all[0].ID, all[1].ID}, want
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func TestExportStates(t *testing.T) {
	dir, prompts, want := statesFolder(t)
	out := t.TempDir()
	for _, ext := range []string{".safetensors", ".npz"} {
		if code := mainCode([]string{"export", dir, "--states", filepath.Join(out, "s"+ext)}, nil, io.Discard, io.Discard); code != 0 {
			t.Fatalf("%s: exit code %d", ext, code)
		}
	}
	ids, err := os.ReadFile(filepath.Join(out, "s.csv"))
	if err != nil || string(ids) != "row,prompt_id,request_id,variant,phase\n0,"+prompts[0]+",r1,base,respond\n1,"+prompts[1]+",r2,base,respond\n" {
		t.Errorf("%v: the ids are\n%s", err, ids)
	}

	// Read as the formats' own descriptions say.
	b, err := os.ReadFile(filepath.Join(out, "s.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	n := int(binary.LittleEndian.Uint64(b))
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil || n%8 != 0 {
		t.Fatal(n, err)
	}
	values := b[8+n:]
	var meta map[string]string
	var list []string
	if err := json.Unmarshal(header["__metadata__"], &meta); err != nil || json.Unmarshal([]byte(meta["prompt_ids"]), &list) != nil || !slices.Equal(list, prompts) {
		t.Errorf("metadata %s: %v", header["__metadata__"], err)
	}
	if len(header) != len(want)+1 || len(values) != len(want)*2*5*4 {
		t.Errorf("%d arrays in %d bytes", len(header)-1, len(values))
	}
	for name, v := range want {
		var h struct {
			Dtype   string
			Shape   []int
			Offsets []int `json:"data_offsets"`
		}
		if err := json.Unmarshal(header[name], &h); err != nil || h.Dtype != "F32" || !slices.Equal(h.Shape, []int{2, 5}) {
			t.Fatalf("%s: %+v, %v", name, h, err)
		}
		if got := floats(values[h.Offsets[0]:h.Offsets[1]]); !slices.Equal(got, v) {
			t.Errorf("safetensors %s is %v, want %v", name, got, v)
		}
	}

	z, err := zip.OpenReader(filepath.Join(out, "s.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if len(z.File) != len(want)+1 || z.File[0].Name != "prompt_id.npy" {
		t.Errorf("%d files, the first is %s", len(z.File), z.File[0].Name)
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		n := 10 + int(binary.LittleEndian.Uint16(b[8:]))
		head := string(b[:n])
		if !strings.HasPrefix(head, "\x93NUMPY\x01\x00") || n%64 != 0 || head[n-1] != '\n' {
			t.Fatalf("%s begins with %q", f.Name, head)
		}
		name := strings.TrimSuffix(f.Name, ".npy")
		if name == "prompt_id" {
			if !strings.Contains(head, "'<U64'") || !strings.Contains(head, "(2,)") || strings.ReplaceAll(string(b[n:]), "\x00", "") != prompts[0]+prompts[1] {
				t.Errorf("the ids are %q", b)
			}
		} else if !strings.Contains(head, "'<f4'") || !strings.Contains(head, "(2, 5)") || !slices.Equal(floats(b[n:]), want[name]) {
			t.Errorf("npz %s: %q, %v", name, head, floats(b[n:]))
		}
	}
	var said bytes.Buffer
	if code := mainCode([]string{"export", dir, "--states", filepath.Join(out, "s.bin")}, nil, io.Discard, &said); code != exitUsage || !strings.Contains(said.String(), "neither .safetensors nor .npz") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}

// TestExportStatesInPython reads the files with the libraries of the formats.
// DEMUR_TEST_PYTHON names a Python that has NumPy and safetensors.
func TestExportStatesInPython(t *testing.T) {
	python := os.Getenv("DEMUR_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import numpy, safetensors").Run() != nil {
		t.Skipf("%s has no NumPy and safetensors; name one that has by DEMUR_TEST_PYTHON", python)
	}
	dir, prompts, want := statesFolder(t)
	out := t.TempDir()
	for _, ext := range []string{".safetensors", ".npz"} {
		if code := mainCode([]string{"export", dir, "--states", filepath.Join(out, "s"+ext)}, nil, io.Discard, io.Discard); code != 0 {
			t.Fatalf("%s: exit code %d", ext, code)
		}
	}
	c := exec.Command(python, "-c", `
import json, numpy as np
from safetensors import safe_open
z = np.load("s.npz")
with safe_open("s.safetensors", "np") as s:
    assert json.loads(s.metadata()["prompt_ids"]) == z["prompt_id"].tolist()
    assert sorted(list(s.keys()) + ["prompt_id"]) == sorted(z.files)
    for k in s.keys():
        assert z[k].dtype == np.float32 and (z[k] == s.get_tensor(k)).all()
print(z["prompt_id"][1], z["layer_12.post"].shape, z["layer_12.post"][1, 3])
`)
	c.Dir = out
	b, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	f := strings.Fields(strings.TrimSpace(string(b)))
	v, _ := strconv.ParseFloat(f[len(f)-1], 32)
	if f[0] != prompts[1] || !strings.Contains(string(b), "(2, 5)") || math.Abs(v-float64(want["layer_12.post"][8])) > 1e-4 {
		t.Errorf("Python reads %s", b)
	}
}
