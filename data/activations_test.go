package data_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"demur/data"
)

// Values from NumPy 2: np.float32(x).astype(np.float16).view(np.uint16).
var halves = []struct {
	v    float32
	want uint16
}{
	{0, 0x0000},
	{float32(math.Copysign(0, -1)), 0x8000},
	{1, 0x3c00},
	{-2, 0xc000},
	{0.1, 0x2e66},
	{65504, 0x7bff},
	{65519.996, 0x7bff},
	{65520, 0x7c00},
	{-1e9, 0xfc00},
	{1.00048828125, 0x3c00},  // a tie, down to even
	{1.00146484375, 0x3c02},  // a tie, up to even
	{6.1035156e-05, 0x0400},  // the least normal number
	{6.0975552e-05, 0x03ff},  // the greatest below
	{5.9604645e-08, 0x0001},  // the least
	{2.9802322e-08, 0x0000},  // half of it, a tie
	{2.9802326e-08, 0x0001},  // a little more
	{8.9406967e-08, 0x0002},  // one and a half, a tie
	{-3.0517578e-05, 0x8200}, // subnormal
}

func TestHalf(t *testing.T) {
	for _, c := range halves {
		if got := data.HalfOf(c.v); got != c.want {
			t.Errorf("float16 of %g is %#04x, want %#04x", c.v, got, c.want)
		}
	}
	if got := data.HalfOf(float32(math.NaN())); got&0x7c00 != 0x7c00 || got&0x3ff == 0 {
		t.Errorf("NaN becomes %#04x", got)
	}
	// Every float16 is exactly a float32, and comes back from it.
	for bits := range 1 << 16 {
		v := data.FromHalf(uint16(bits))
		if v != v {
			continue
		}
		if got := data.HalfOf(v); got != uint16(bits) {
			t.Fatalf("%#04x is %g, which becomes %#04x", bits, v, got)
		}
	}
	// No other float16 is nearer.
	r := rand.New(rand.NewPCG(1, 0))
	for range 200000 {
		v := float32(math.Ldexp(2*r.Float64()-1, r.IntN(45)-28))
		bits := data.HalfOf(v)
		if bits&0x7fff >= 0x7bff {
			continue
		}
		off := math.Abs(float64(v) - float64(data.FromHalf(bits)))
		for _, near := range []uint16{bits + 1, bits - 1} {
			if other := math.Abs(float64(v) - float64(data.FromHalf(near))); other < off && near&0x8000 == bits&0x8000 {
				t.Fatalf("%g becomes %g, but %g is nearer", v, data.FromHalf(bits), data.FromHalf(near))
			}
		}
	}
}

func activations(n, width int) []data.Activation {
	r := rand.New(rand.NewPCG(2, 0))
	var rows []data.Activation
	for i := range n {
		row := data.Activation{PromptID: data.Digest(i), Layer: 7, Anchor: "inst", Position: -3, Token: int32(i)}
		for range width {
			row.Values = append(row.Values, float32(r.NormFloat64()*math.Exp(2*r.NormFloat64())))
		}
		rows = append(rows, row)
	}
	return rows
}

// What WriteLayer writes, ReadTable reads as Activation, float16 rounded once.
func TestLayers(t *testing.T) {
	rows := activations(300, 40)
	size := map[bool]int64{}
	for _, half := range []bool{false, true} {
		dir := t.TempDir()
		must(t, data.WriteLayer(dir, 7, data.LayerOptions{Half: half, Group: 10000}, values(rows)))
		got := collect[data.Activation](t, dir, data.LayerTable(7))
		if len(got) != len(rows) {
			t.Fatalf("%d rows, want %d", len(got), len(rows))
		}
		for i, row := range rows {
			want := slices.Clone(row.Values)
			for k := range want {
				if half {
					want[k] = data.FromHalf(data.HalfOf(want[k]))
				}
			}
			if g := got[i]; !slices.Equal(g.Values, want) || g.PromptID != row.PromptID || g.Layer != 7 || g.Anchor != "inst" || g.Position != -3 || g.Token != int32(i) {
				t.Fatalf("half %v: row %d is %+v", half, i, g)
			}
		}
		file := filepath.Join(dir, "activations", "layer_07.parquet")
		b, err := os.ReadFile(file)
		must(t, err)
		size[half] = int64(len(b))
		f, err := os.Open(file)
		must(t, err)
		defer f.Close()
		p, err := parquet.OpenFile(f, size[half])
		must(t, err)
		if groups := len(p.RowGroups()); groups < 4 || groups > 12 {
			t.Errorf("half %v: %d row groups of about 10000 bytes", half, groups)
		}
		marked := slices.ContainsFunc(p.Metadata().Schema, func(e format.SchemaElement) bool {
			_, ok := e.LogicalType.Value.(*format.Float16Type)
			return ok
		})
		if marked != half {
			t.Errorf("half %v: the file says float16: %v", half, marked)
		}
	}
	if size[true]*10 > size[false]*7 {
		t.Errorf("float16 takes %d bytes, float32 %d", size[true], size[false])
	}
	if got := data.LayerTable(-1); got != "activations/embedding" {
		t.Error(got)
	}
}

func TestHalfRefusesWhatItCannotHold(t *testing.T) {
	for name, v := range map[string]float32{"65504": 70000, "NaN": float32(math.NaN())} {
		dir := t.TempDir()
		err := data.WriteLayer(dir, 7, data.LayerOptions{Half: true}, values([]data.Activation{{PromptID: "p", Layer: 7, Anchor: "inst", Values: []float32{1, v}}}))
		if err == nil || !strings.Contains(err.Error(), name) || data.HasTable(dir, data.LayerTable(7)) {
			t.Errorf("%g: %v", v, err)
		}
	}
}

func TestParts(t *testing.T) {
	dir := t.TempDir()
	p, err := data.OpenParts(dir, "work")
	must(t, err)
	rows := activations(3, 4)
	if _, ok, err := data.LoadPart[data.Activation](p, []int{1}); ok || err != nil {
		t.Errorf("a part that was not stored: %v, %v", ok, err)
	}
	must(t, data.StorePart(p, []int{1}, rows))
	if _, err := data.OpenParts(dir, "work"); err == nil || !strings.Contains(err.Error(), "process") {
		t.Errorf("opened twice: %v", err)
	}
	must(t, p.Close())
	// As a killed process leaves it.
	torn := filepath.Join(dir, "parts", ".half.parquet.1.tmp")
	must(t, os.WriteFile(torn, []byte("PAR1"), 0o644))

	p, err = data.OpenParts(dir, "work")
	must(t, err)
	if _, err := os.Stat(torn); err == nil {
		t.Error("what was half written is still there")
	}
	got, ok, err := data.LoadPart[data.Activation](p, []int{1})
	if err != nil || !ok || len(got) != 3 || !slices.Equal(got[2].Values, rows[2].Values) {
		t.Errorf("the part comes back as %v, %v, %v", got, ok, err)
	}
	if _, ok, _ := data.LoadPart[data.Activation](p, []int{2}); ok {
		t.Error("the part of another key was found")
	}
	names, err := os.ReadDir(filepath.Join(dir, "parts"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "parts", names[0].Name()), []byte("PAR1 and no more"), 0o644))
	if _, _, err := data.LoadPart[data.Activation](p, []int{1}); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged part: %v", err)
	}
	must(t, p.Close())

	// Other work does not see them, and takes their place.
	p, err = data.OpenParts(dir, "other work")
	must(t, err)
	if names, err := os.ReadDir(filepath.Join(dir, "parts")); err != nil || len(names) != 0 {
		t.Errorf("%d parts of other work are left: %v", len(names), err)
	}
	must(t, data.StorePart(p, 1, rows))
	must(t, p.Remove())
	must(t, p.Remove())
	must(t, p.Close())
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// FuzzActivations: a table of activations from outside is read or refused.
func FuzzActivations(f *testing.F) {
	for _, half := range []bool{false, true} {
		dir := f.TempDir()
		must(f, data.WriteLayer(dir, 7, data.LayerOptions{Half: half}, values(activations(3, 4))))
		b, err := os.ReadFile(filepath.Join(dir, "activations", "layer_07.parquet"))
		must(f, err)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "activations"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "activations", "layer_07.parquet"), b, 0o644))
		n := 0
		for _, err := range data.ReadTable[data.Activation](dir, data.LayerTable(7)) {
			if err != nil {
				return
			}
			if n++; n > 1000 {
				return
			}
		}
	})
}
