package phantom

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

// A Model is a phantom: its weights, its vocabulary, and the spec that they
// come from. It is not changed after Build.
type Model struct {
	Spec       Spec
	vocabulary *vocabulary
	words      []Word
	basis      [][]float64 // row j: where coordinate j lies in the residual stream
	tensors    []tensor    // in the order of the file
	byName     map[string]int
	network    func() *network // the weights in float64, read once
}

// A tensor is a matrix, or a vector if it has one row.
type tensor struct {
	name    string
	rows    int
	columns int // of consecutive values: what a row is multiplied with
	values  []float32
}

// Words returns the lexicon with the values that are planted in m.
func (m *Model) Words() []Word { return m.words }

// Width returns the length of the residual stream.
func (m *Model) Width() int { return m.Spec.Width }

// Build computes the weights of a phantom.
func Build(s Spec) (*Model, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	words, pieces := s.words()
	m := &Model{
		Spec:       s,
		vocabulary: newVocabulary(words, pieces),
		words:      words,
		basis:      rotation(s.Seed, s.Width),
		byName:     map[string]int{},
	}
	if need := firstNext + nextLink + links(); need > s.Width {
		return nil, fmt.Errorf("phantom: width %d holds no %d coordinates", s.Width, need)
	}
	m.matrix("token_embd.weight", m.embeddings())
	for b := range s.Blocks {
		m.block(b)
	}
	m.vector("output_norm.weight")
	m.matrix("output.weight", m.outputs())
	m.network = sync.OnceValue(func() *network { return newNetwork(m) })
	return m, nil
}

// links counts the links of all answers but for the first ones.
func links() int {
	n := 0
	for _, a := range chains() {
		n += len(a.links) - 1
	}
	return n
}

// embeddings returns what each token is, by id.
func (m *Model) embeddings() []sparse {
	v, s := m.vocabulary, m.Spec
	rows := make([]sparse, len(v.texts))
	for id := range rows {
		row := sparse{}
		if w := v.meanings[id]; w != nil {
			row[ownHarm] = float64(w.Harm) / harmLevels
			row[ownTrigger] = w.Trigger
			row[ownError] = w.Error
			switch w.Kind {
			case Partially:
				row[ownPartial] = 1
			case Deflecting:
				row[ownDeflect] = 1
			}
			switch w.Evasion {
			case Declined:
				row[ownEvade] = 1
			case Unparsed:
				row[ownEvade] = -1
			}
		}
		if v.kinds[id] == kindNormal {
			r := rand.New(rand.NewPCG(s.WordSeed^0x6e6f697365, wordKey(v.texts[id])))
			for i := range noiseWidth {
				row[ownNoise+i] = float64(s.Noise * gauss(r) / 2)
			}
		}
		rows[id] = row
	}
	next := func(id, set int) { rows[id][firstNext+set] = 1 }
	rows[tokBegin][isBegin] = 1
	rows[tokEnd][isAfter] = 1
	rows[tokAssistant][isAfter] = 1
	next(tokAssistant, nextStart)
	for id, sign := range map[int]float64{tokKeyRefuse: 1, tokWillRefuse: 1, tokKeyAnswer: -1, tokWillAnswer: -1} {
		rows[id][isMode] = 1
		rows[id][ownMode] = sign
	}
	rows[tokKeyRefuse][isRefuse] = 1
	rows[tokKeyAnswer][isAnswer] = 1
	for _, id := range []int{tokKeyRefuse, tokKeyAnswer} {
		rows[id][isAfter] = 1
		next(id, nextValue)
	}
	next(tokTrue, nextKey)
	next(tokFalse, nextKey)
	rows[tokConfidence][isAfter] = 1
	rows[tokConfidence][isStated] = 1
	rows[tokConfidence][digit] = s.ConfidenceBase / verdictScale
	next(tokConfidence, nextDigit)
	rows[tokHarmRating][isRated] = 1
	next(tokHarmRating, nextDigit)
	next(tokBytes+'}', nextEnd)
	set := nextLink
	for _, chain := range v.chains {
		for i, id := range chain {
			if i == len(chain)-1 {
				next(id, nextEnd)
				continue
			}
			next(id, set)
			set++
		}
	}
	for _, row := range rows {
		var rest float64
		for c := range s.Width {
			rest += float64(row[c] * row[c])
		}
		row[constant] = root(float64(constantSize*constantSize) - rest)
	}
	return rows
}

// cosine and sine of the angle between the harm and refusal directions.
func (s Spec) cosSin() (cosine, sine float64) {
	if s.Angle == 90 {
		return 0, 1
	}
	a := s.Angle * math.Pi / 180
	return steady(math.Cos(a)), steady(math.Sin(a))
}

// refusalDirection is what RefusalBlock writes, for a refusal component of 1.
func (s Spec) refusalDirection() sparse {
	cosine, sine := s.cosSin()
	if s.Angle == 0 {
		return sparse{harm: 1}
	}
	return sparse{harm: cosine, refusal: sine}
}

// readHarm and readRefusal are the read-outs. Each gives 1 on its own direction
// and 0 on the other, whatever the angle, unless the two are one.
func (s Spec) readHarm() sparse {
	cosine, sine := s.cosSin()
	if s.Angle == 0 {
		return sparse{harm: 1}
	}
	return sparse{harm: 1, refusal: -cosine / sine}
}

func (s Spec) readRefusal() sparse {
	_, sine := s.cosSin()
	if s.Angle == 0 {
		return sparse{harm: 1}
	}
	return sparse{refusal: 1 / sine}
}

// readPrediction is the log odds of predicting refusal.
func (s Spec) readPrediction() sparse {
	row := sparse{constant: float64(s.SelfSlope*(s.SelfBias-s.Threshold)) / constantSize, selfError: s.SelfSlope}
	row.plus(s.readRefusal(), s.SelfSlope*s.SelfWeight)
	return row
}

// plus adds times·other.
func (v sparse) plus(other sparse, times float64) {
	for c, x := range other {
		v[c] += float64(times * x)
	}
}

// block appends the tensors of a block. Three blocks do something; the others
// only leave a mark that means nothing.
func (m *Model) block(b int) {
	s := m.Spec
	const dims = heads * headWidth
	query, key, value := make([]sparse, dims), make([]sparse, dims), make([]sparse, dims)
	out := make([]sparse, dims) // by head dimension: the direction that it writes
	gate, up := make([]sparse, feedForward), make([]sparse, feedForward)
	down := make([]sparse, feedForward)

	// The slowest rotary pair turns by 7e-5 over the whole context: keys there
	// are plain numbers. Attention divides by the root of the head's width.
	const slow = headWidth - 2
	const undo = 4 // √headWidth
	if b == s.HarmBlock {
		const h0, h1, h2, h3 = 0, headWidth, 2 * headWidth, 3 * headWidth
		// Head 0: the most harmful word so far, 40 nats before the next level.
		query[h0+slow] = sparse{constant: 40 * undo / float64(constantSize)}
		key[h0+slow] = sparse{ownHarm: harmLevels}
		value[h0] = sparse{ownHarm: 1}
		out[h0] = sparse{harm: 1}
		// Head 1: whether a prediction was asked for, and which.
		query[h1+slow] = sparse{constant: 60 * undo / float64(constantSize)}
		key[h1+slow] = sparse{isMode: 1}
		value[h1] = sparse{ownMode: 1}
		out[h1] = sparse{mode: 1}
		value[h1+1] = sparse{isMode: 1}
		out[h1+1] = sparse{asked: 1}
		// Head 2: the token just before, by four rotary pairs whose phases agree
		// only there. It tells a digit which number it states.
		for pair, size := range previousSizes {
			angle := float64(pair) * 2 / headWidth
			turn := math.Pow(ropeBase, -angle)
			query[h2+2*pair] = sparse{constant: size * undo * steady(math.Cos(turn)) / constantSize}
			query[h2+2*pair+1] = sparse{constant: -size * undo * steady(math.Sin(turn)) / constantSize}
			key[h2+2*pair] = sparse{constant: 1 / float64(constantSize)}
		}
		value[h2] = sparse{isStated: 1}
		out[h2] = sparse{firstNext + nextRating: 1}
		value[h2+1] = sparse{isRated: 1}
		out[h2+1] = sparse{firstNext + nextClose: 1}
		// Head 3: the mean of all tokens' noise.
		for i := range noiseWidth {
			value[h3+i] = sparse{ownNoise + i: 1}
			out[h3+i] = sparse{meanNoise + i: 1}
		}
	}
	if b == s.RefusalBlock {
		// Head 0: the word with the greatest trigger so far, 16 nats before the
		// next step, looked for only after the request; elsewhere the head rests on
		// the beginning token, which carries nothing.
		query[slow] = sparse{isAfter: 16 * undo}
		key[slow] = sparse{ownTrigger: triggerLevels}
		query[slow+1] = sparse{constant: 60 * undo / float64(constantSize), isAfter: -60 * undo}
		key[slow+1] = sparse{isBegin: 1}
		if s.Angle != 0 {
			value[0] = sparse{ownTrigger: 1}
			out[0] = s.refusalDirection()
		}
		value[1] = sparse{ownError: 1}
		out[1] = sparse{selfError: 1}
		value[2] = sparse{ownPartial: 1}
		out[2] = sparse{partial: 1}
		value[3] = sparse{ownDeflect: 1}
		out[3] = sparse{deflecting: 1}
		value[4] = sparse{ownEvade: 1}
		out[4] = sparse{evading: 1}
	}
	if b != s.HarmBlock {
		// Last head: the mean of one of the noise coordinates, another in each block.
		const h3 = 3 * headWidth
		value[h3] = sparse{ownNoise + b%noiseWidth: 1}
		out[h3] = sparse{passing: 1}
	}
	if b == s.Blocks-1 {
		prediction := s.readPrediction()
		// Where the value of the prediction is due: its log odds, signed.
		gate[0] = sparse{isRefuse: hinge}
		up[0] = prediction
		down[0] = sparse{verdict: 1.0 / (hinge * verdictScale)}
		gate[1] = sparse{isAnswer: hinge}
		up[1] = prediction
		down[1] = sparse{verdict: -1.0 / (hinge * verdictScale)}
		// Where the confidence is due: the log odds' size, by two hinges.
		for i, sign := range []float64{1, -1} {
			gate[2+i] = sparse{constant: -hinge * shut / float64(constantSize), isStated: hinge * shut}
			gate[2+i].plus(prediction, sign*hinge)
			up[2+i] = sparse{constant: 1 / float64(constantSize)}
			down[2+i] = sparse{digit: s.ConfidenceGain / (hinge * verdictScale)}
		}
		// Where the harm rating is due: the harm.
		gate[4] = sparse{isRated: hinge}
		up[4] = s.readHarm()
		down[4] = sparse{digit: harmLevels / (hinge * float64(verdictScale))}
	}

	name := func(part string) string { return blockName(b, part) }
	m.vector(name("attn_norm"))
	m.matrix(name("attn_q"), query)
	m.matrix(name("attn_k"), key)
	m.matrix(name("attn_v"), value)
	m.transposed(name("attn_output"), out)
	m.vector(name("ffn_norm"))
	m.matrix(name("ffn_gate"), gate)
	m.matrix(name("ffn_up"), up)
	m.transposed(name("ffn_down"), down)
}

// previousSizes are the weights, in nats, of the first four rotary pairs (they
// turn by 1, 0.075, 0.0056 and 0.00042 per token) in the head that looks at the
// token just before: every other token of the context falls at least 26 nats
// behind.
var previousSizes = [4]float64{60, 240, 200, 200}

// outputs returns the logit of each token as a read-out of the last stream.
func (m *Model) outputs() []sparse {
	v, s := m.vocabulary, m.Spec
	rows := make([]sparse, len(v.texts))
	for id := range rows {
		rows[id] = sparse{}
	}
	after := func(id, set int) { rows[id][firstNext+set] += nextMargin }
	set := nextLink
	for i, a := range chains() {
		for _, id := range v.chains[i][1:] {
			after(id, set)
			set++
		}
		first := v.chains[i][0]
		after(first, nextStart)
		row := rows[first]
		if a.label == Declined || a.label == Unparsed {
			// Only where a prediction is asked for and the word that decides evades it.
			sign := 1.0
			if a.label == Unparsed {
				sign = -1
			}
			row[asked] += evadeMargin
			row[evading] += sign * evadeMargin
			row[firstNext+nextStart] -= 1.5 * evadeMargin
			continue
		}
		// Half of the log odds of refusing, for or against.
		side := 0.5
		if a.label == FullCompliance {
			side = -0.5
		}
		row.plus(s.readRefusal(), side*s.Slope)
		row[firstNext+nextStart] += float64(-side * s.Slope * s.Threshold)
		row[firstNext+nextStart] += steady(math.Log(a.share))
		switch a.label {
		case FullRefusal:
			if i == 0 {
				row[partial] -= kindMargin
				row[deflecting] -= kindMargin
			}
		case PartialRefusal:
			row[firstNext+nextStart] -= kindMargin
			row[partial] += kindMargin
		case Deflection:
			row[firstNext+nextStart] -= kindMargin
			row[deflecting] += kindMargin
		}
	}
	for id, sign := range map[int]float64{tokKeyRefuse: 1, tokKeyAnswer: -1} {
		after(id, nextStart)
		rows[id][firstNext+nextStart] -= modeMargin / 2
		rows[id][mode] = sign * modeMargin
	}
	after(tokTrue, nextValue)
	rows[tokTrue][verdict] = verdictScale / 2
	after(tokFalse, nextValue)
	rows[tokFalse][verdict] = -verdictScale / 2
	after(tokConfidence, nextKey)
	after(tokHarmRating, nextRating)
	for k := 1; k <= 5; k++ {
		id := tokBytes + '0' + k
		after(id, nextDigit)
		// 2kf − k² is greatest at the k nearest to f.
		rows[id][digit] = s.DigitSharpness * 2 * float64(k) * verdictScale
		rows[id][firstNext+nextDigit] -= s.DigitSharpness * float64(k*k)
	}
	after(tokBytes+'}', nextClose)
	after(tokEnd, nextEnd)
	return rows
}

// matrix appends a tensor whose rows read the stream: row·x.
func (m *Model) matrix(name string, rows []sparse) {
	t := tensor{name: name, rows: len(rows), columns: m.Spec.Width, values: make([]float32, len(rows)*m.Spec.Width)}
	for i, row := range rows {
		for j, x := range m.rotated(row) {
			t.values[i*t.columns+j] = float32(x)
		}
	}
	m.append(t)
}

// transposed appends a tensor that writes to the stream: its column i is the
// direction that the i-th of columns writes.
func (m *Model) transposed(name string, columns []sparse) {
	t := tensor{name: name, rows: m.Spec.Width, columns: len(columns), values: make([]float32, len(columns)*m.Spec.Width)}
	for i, column := range columns {
		for j, x := range m.rotated(column) {
			t.values[j*t.columns+i] = float32(x)
		}
	}
	m.append(t)
}

func blockName(b int, part string) string { return fmt.Sprintf("blk.%d.%s.weight", b, part) }

// vector appends a norm's weights: they give the stream back its own size, as
// far as all of it is constant.
func (m *Model) vector(name string) {
	t := tensor{name: name, rows: 1, columns: m.Spec.Width, values: make([]float32, m.Spec.Width)}
	for i := range t.values {
		t.values[i] = float32(constantSize / root(float64(m.Spec.Width)))
	}
	m.append(t)
}

func (m *Model) append(t tensor) {
	m.byName[t.name] = len(m.tensors)
	m.tensors = append(m.tensors, t)
}

// rotated returns v in the basis of the file.
func (m *Model) rotated(v sparse) []float64 {
	x := make([]float64, m.Spec.Width)
	for c := range m.Spec.Width { // in order, so that sums are the same every time
		if v[c] == 0 {
			continue
		}
		for i, q := range m.basis[c] {
			x[i] += float64(v[c] * q)
		}
	}
	return x
}
