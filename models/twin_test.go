package models_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"demur/models"
)

// unpackers read blocks of quantised weights, written from the layouts and
// formulas of ggml-common.h and ggml-quants.c (dequantize_row_…), apart from the
// code under test.
var unpackers = []struct {
	name string
	kind uint32
	size int // of a block, bytes
	read func(b []byte) []float64
}{
	{"F32", 0, 4, func(b []byte) []float64 {
		return []float64{float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))}
	}},
	{"F16", 1, 2, func(b []byte) []float64 { return []float64{f16(b)} }},
	{"BF16", 30, 2, func(b []byte) []float64 {
		return []float64{float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))}
	}},
	{"Q4_0", 2, 18, func(b []byte) (out []float64) {
		for _, q := range b[2:] {
			out = append(out, f16(b)*(float64(q&15)-8), f16(b)*(float64(q>>4)-8))
		}
		return out
	}},
	{"Q4_1", 3, 20, func(b []byte) (out []float64) {
		for _, q := range b[4:] {
			out = append(out, f16(b)*float64(q&15)+f16(b[2:]), f16(b)*float64(q>>4)+f16(b[2:]))
		}
		return out
	}},
	{"Q5_0", 6, 22, func(b []byte) (out []float64) {
		high := binary.LittleEndian.Uint32(b[2:])
		for j, q := range b[6:] {
			out = append(out, f16(b)*(float64(uint32(q&15)|high>>j&1<<4)-16), f16(b)*(float64(uint32(q>>4)|high>>(j+16)&1<<4)-16))
		}
		return out
	}},
	{"Q5_1", 7, 24, func(b []byte) (out []float64) {
		high := binary.LittleEndian.Uint32(b[4:])
		for j, q := range b[8:] {
			out = append(out, f16(b)*float64(uint32(q&15)|high>>j&1<<4)+f16(b[2:]), f16(b)*float64(uint32(q>>4)|high>>(j+16)&1<<4)+f16(b[2:]))
		}
		return out
	}},
	{"Q8_0", 8, 34, func(b []byte) (out []float64) {
		for _, q := range b[2:] {
			out = append(out, f16(b)*float64(int8(q)))
		}
		return out
	}},
	{"Q2_K", 10, 84, func(b []byte) (out []float64) {
		d, least := f16(b[80:]), f16(b[82:])
		for i := range 256 {
			// 128 values share 32 bytes; each 16 have a scale.
			q := b[16+i/128*32+i%32] >> (2 * (i % 128 / 32)) & 3
			s := b[i/16]
			out = append(out, d*float64(s&15)*float64(q)-least*float64(s>>4))
		}
		return out
	}},
	{"Q3_K", 11, 110, func(b []byte) (out []float64) {
		for i := range 256 {
			q := int(b[32+i/128*32+i%32] >> (2 * (i % 128 / 32)) & 3)
			if b[i%32]>>(i/32)&1 == 0 {
				q -= 4
			}
			k := i / 16
			low := b[96+k%8] >> (4 * (k / 8)) & 15
			high := b[104+k%4] >> (2 * (k / 4)) & 3
			out = append(out, f16(b[108:])*float64(int(low|high<<4)-32)*float64(q))
		}
		return out
	}},
	{"Q4_K", 12, 144, func(b []byte) (out []float64) {
		for i := range 256 {
			s, m := packed(b[4:16], i/32)
			q := b[16+i/64*32+i%32] >> (4 * (i / 32 % 2)) & 15
			out = append(out, f16(b)*s*float64(q)-f16(b[2:])*m)
		}
		return out
	}},
	{"Q5_K", 13, 176, func(b []byte) (out []float64) {
		for i := range 256 {
			s, m := packed(b[4:16], i/32)
			q := b[48+i/64*32+i%32]>>(4*(i/32%2))&15 | b[16+i%32]>>(i/32)&1<<4
			out = append(out, f16(b)*s*float64(q)-f16(b[2:])*m)
		}
		return out
	}},
	{"Q6_K", 14, 210, func(b []byte) (out []float64) {
		for i := range 256 {
			half, l, part := i/128, i%32, i%128/32
			low := b[half*64+part%2*32+l] >> (4 * (part / 2)) & 15
			high := b[128+half*32+l] >> (2 * part) & 3
			out = append(out, f16(b[208:])*float64(int8(b[192+i/16]))*(float64(low|high<<4)-32))
		}
		return out
	}},
}

// packed is the j-th scale and offset of six bits (get_scale_min_k4).
func packed(b []byte, j int) (scale, offset float64) {
	if j < 4 {
		return float64(b[j] & 63), float64(b[j+4] & 63)
	}
	return float64(b[j+4]&15 | b[j-4]>>6<<4), float64(b[j+4]>>4 | b[j]>>6<<4)
}

func f16(b []byte) float64 {
	v := binary.LittleEndian.Uint16(b)
	sign, e, m := 1-2*float64(v>>15), int(v>>10&31), float64(v&1023)
	if e == 0 {
		return sign * m * 0x1p-24
	}
	return sign * math.Ldexp(1+m/1024, e-15)
}

// TestTwin: whatever the kind of weights, they are drawn anew with mean 0 and the
// stated spread, and all else of the file is what it was.
func TestTwin(t *testing.T) {
	const blocks = 4000
	for _, u := range unpackers {
		f := whole()
		n := len(u.read(make([]byte, u.size)))
		matrix := (u.size*blocks + 31) / 32 * 32
		f.tensors = []tensor{
			{"token_embd.weight", []uint64{uint64(n), blocks}, u.kind, 0},
			{"blk.0.attn_norm.weight", []uint64{8}, 0, uint64(matrix)},
			{"blk.0.attn_q.bias", []uint64{8}, 0, uint64(matrix + 32)},
			{"rope_freqs.weight", []uint64{8}, 0, uint64(matrix + 64)},
		}
		f.data = matrix + 96
		b := f.bytes()
		head := len(b) - f.data
		for i := range b[head:] {
			b[head+i] = byte(i) | 1
		}
		file := models.File{Name: "tiny", Path: write(t, "tiny.gguf", b)}
		file.Parts = []string{file.Path}
		twin := func(seed uint64) []byte {
			var out bytes.Buffer
			if err := models.WriteTwin(context.Background(), &out, file, seed); err != nil {
				t.Fatal(u.name, err)
			}
			return out.Bytes()
		}
		got := twin(1)
		if len(got) != len(b) || !bytes.Equal(got[:head], b[:head]) || !bytes.Equal(got, twin(1)) {
			t.Fatalf("%s: the header, the size or the draw differ", u.name)
		}
		if bytes.Equal(got, twin(2)) {
			t.Errorf("%s: two seeds give one twin", u.name)
		}
		at := head + matrix
		for i := range 8 {
			one := math.Float32frombits(binary.LittleEndian.Uint32(got[at+4*i:]))
			zero := math.Float32frombits(binary.LittleEndian.Uint32(got[at+32+4*i:]))
			if one != 1 || zero != 0 {
				t.Errorf("%s: a norm has weight %v, a bias is %v", u.name, one, zero)
			}
		}
		if !bytes.Equal(got[at+64:], b[at+64:]) {
			t.Errorf("%s: the frequencies of positions are not kept", u.name)
		}
		var sum, squares, count float64
		for k := range blocks {
			for _, v := range u.read(got[head+k*u.size : head+(k+1)*u.size]) {
				sum, squares, count = sum+v, squares+v*v, count+1
			}
		}
		mean, sd := sum/count, math.Sqrt(squares/count)
		// A mean of count values of this spread is within five of its standard errors;
		// scales of either sign make a block's values go together.
		if math.Abs(mean) > 5*0.02/math.Sqrt(math.Min(count, 10*blocks)) || math.Abs(sd-0.02) > 0.0015 {
			t.Errorf("%s: mean %.5f, standard deviation %.5f", u.name, mean, sd)
		}
	}
}

func TestTwinRefuses(t *testing.T) {
	f := whole()
	f.tensors = []tensor{{"token_embd.weight", []uint64{256, 4}, 16, 0}} // IQ2_XXS, 66 bytes for 256
	f.data = 4 * 66
	file := models.File{Name: "tiny", Path: write(t, "tiny.gguf", f.bytes())}
	file.Parts = []string{file.Path}
	if err := models.WriteTwin(context.Background(), new(bytes.Buffer), file, 0); err == nil {
		t.Error("weights of a kind that is not known have a twin")
	}
	file.Parts = append(file.Parts, file.Path)
	if err := models.WriteTwin(context.Background(), new(bytes.Buffer), file, 0); err == nil {
		t.Error("a part of a model has a twin")
	}
	if _, err := os.Stat(file.Path); err != nil {
		t.Error(err)
	}
}
