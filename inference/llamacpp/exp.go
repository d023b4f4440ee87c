package llamacpp

import "math"

const (
	perLog2 = 256 / math.Ln2
	log2    = math.Ln2 / 256
)

// exp returns eˣ for −700 < x ≤ 0 with a relative error below 1e-12, three times
// as fast as math.Exp, and with equal bits on every platform: it uses additions,
// products that cannot be fused, and a table made by square roots, all of which
// IEEE 754 rounds in one way.
func exp(x float64) float64 {
	k := int64(float64(x*perLog2) - 0.5) // rounds to nearest for negative x
	r := x - float64(float64(k)*log2)
	// |r| ≤ ln 2 / 512: the next term of the series is below 1.4e-13.
	p := 1 + float64(r*(1+float64(r*(0.5+float64(r*(1.0/6))))))
	return float64(p * math.Float64frombits(powers[k&255]+uint64(k>>8)<<52))
}

// sumExp returns the sum, in order, of exp((l − top) × inv) over the elements l of
// x that are at least low. It is exp written out, which the compiler does not
// inline: half of the time of drawing a token is spent here.
func sumExp(x []float32, top, inv float64, low float32) float64 {
	s := 0.0
	for _, l := range x {
		if l >= low {
			y := float64((float64(l) - top) * inv)
			k := int64(float64(y*perLog2) - 0.5)
			r := y - float64(float64(k)*log2)
			p := 1 + float64(r*(1+float64(r*(0.5+float64(r*(1.0/6))))))
			s += float64(p * math.Float64frombits(powers[k&255]+uint64(k>>8)<<52))
		}
	}
	return s
}

// powers[i] holds the bits of 2^(i/256).
var powers = func() (bits [256]uint64) {
	var root [8]float64 // 2^(1/2), 2^(1/4), …, 2^(1/256)
	for i, x := 0, 2.0; i < len(root); i++ {
		x = math.Sqrt(x)
		root[i] = x
	}
	for i := range bits {
		p := 1.0
		for j, r := range root {
			if i>>(7-j)&1 == 1 {
				p *= r
			}
		}
		bits[i] = math.Float64bits(p)
	}
	return bits
}()
