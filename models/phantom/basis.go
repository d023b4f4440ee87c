package phantom

import (
	"math"
	"math/rand/v2"
)

// Coordinates of the residual stream before the rotation: what stands where.
// The file holds only rotated vectors, in which each of these is dense.
const (
	constant = iota // large and nearly equal everywhere: makes the norms of RMSNorm nearly constant

	// Written by the embedding: what a token is.
	ownHarm    // a word's harm / 5
	ownTrigger // a word's trigger, 0 to 1
	ownError   // the self-prediction's error at this word
	ownPartial // 1 where the word makes refusals partial
	ownDeflect // 1 where the word makes refusals deflections
	ownEvade   // 1 where the word makes a free prediction declined, -1 where unreadable
	ownMode    // of will_refuse 1, of will_answer -1
	isMode     // 1 at those two
	isAfter    // 1 at the template tokens after a request, and where a prediction is stated
	isBegin    // 1 at the beginning token
	isRefuse   // 1 at {"will_refuse":
	isAnswer   // 1 at {"will_answer":
	isStated   // 1 at , "confidence":
	isRated    // 1 at , "harm_rating":

	// Written by HarmBlock at every position.
	harm  // greatest harm / 5 of the words so far; along the harm direction
	mode  // 1 where will_refuse was read, -1 where will_answer was
	asked // 1 in both cases

	// Written by RefusalBlock where isAfter.
	refusal    // the part of the refusal direction that is orthogonal to the harm direction
	selfError  // the error of the word that decides
	partial    // its kind
	deflecting //
	evading    //

	// Written by the last block.
	verdict // log odds of predicting refusal, signed by the question's polarity, / scale
	digit   // the number to state / scale

	// Written by every block but HarmBlock, so that no two hold the same stream.
	passing

	ownNoise      // noiseWidth coordinates: what a token brings along that means nothing
	meanNoise     = ownNoise + noiseWidth
	firstNext     = meanNoise + noiseWidth // codes: one coordinate for each set of tokens that can come next
	noiseWidth    = 4
	constantSize  = 64 // length of every embedding, nearly all of it along constant
	verdictScale  = 8  // keeps what the last block writes small beside the constant
	harmLevels    = 5
	nextMargin    = 600 // logit of the tokens that can come next, over all others
	modeMargin    = 120 // logit by which a prediction is stated where one is asked for
	evadeMargin   = 240 // logit by which two conditions for an evasion outweigh one
	kindMargin    = 40  // logit by which answers of another kind are left out
	hinge         = 16  // steepness of SwiGLU's gates: silu(16) = 16 - 2e-6
	shut          = 100 // how far below zero a closed gate is held
	headWidth     = 16
	heads         = 4
	feedForward   = 32
	contextLength = 4096
	ropeBase      = 1e9
	normEpsilon   = 1e-6
)

// Sets of tokens that can come next. The links of the answers follow.
const (
	nextStart  = iota // first link of an answer, or the key of a prediction
	nextValue         // true, false
	nextKey           // , "confidence":
	nextDigit         // 1 to 5
	nextRating        // , "harm_rating":
	nextClose         // }
	nextEnd           // <|end|>
	nextLink          // links after the first, one set each
)

// A vector in coordinates before the rotation.
type sparse map[int]float64

// rotation returns an orthogonal matrix by rows: row j is the image of
// coordinate j. Gram–Schmidt, twice over, on a matrix of uniform numbers.
func rotation(seed uint64, width int) [][]float64 {
	r := rand.New(rand.NewPCG(seed, 0x726f746174696f6e))
	q := make([][]float64, width)
	for j := range q {
		q[j] = make([]float64, width)
		for i := range q[j] {
			q[j][i] = 2*r.Float64() - 1
		}
		for range 2 {
			for _, earlier := range q[:j] {
				along := dot(earlier, q[j])
				for i := range q[j] {
					q[j][i] -= float64(along * earlier[i])
				}
			}
			length := root(dot(q[j], q[j]))
			for i := range q[j] {
				q[j][i] /= length
			}
		}
	}
	return q
}

// dot is the inner product, without fused operations, so that it is the same
// on every platform.
func dot(a, b []float64) float64 {
	var s float64
	for i := range a {
		s += float64(a[i] * b[i])
	}
	return s
}

func root(x float64) float64 { return math.Sqrt(x) }

// steady rounds what a function of package math returned, whose last bits may
// differ between platforms, far below the precision of the file.
func steady(x float64) float64 { return math.Round(x*(1<<40)) / (1 << 40) }
