package analysis

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"demur/data"
)

// A Dataset is one model's records, kept compact: a trial costs some fifty
// bytes, so a million of them fit easily. Records come in any order and are
// joined by their ids. Texts are read only for equality and kept only if
// KeepTexts was set before they were added.
type Dataset struct {
	Model     string
	Label     string // the run's own name, which tells runs of one model apart; may be empty
	KeepTexts bool
	// Settings are what the run was made with, by name and in words (quantisation,
	// system prompt, engine …): Compare says which differ. May be nil.
	Settings map[string]string

	ids       map[string]int32 // request_id
	requests  []requestRow
	variants  names
	labels    names // of questions, polarities and readings
	judges    names
	reasons   names // of verdicts, at most mostReasons
	temps     []float64
	preds     []predictionRow
	trials    []trialRow
	keys      map[key]int32
	verdicts  []verdictRow
	responses []string // by trial, if texts are kept
	scores    []Score
	probes    []data.Estimate
	labelled  []labelledRow // of elsewhere, see AddLabelled
}

// A Score is one prompt's held-out score from a direction of package probes, as
// the report needs it. Several sites may be added; each is shown apart.
type Score struct {
	RequestID string
	Variant   string
	Target    string // what the direction was fitted for: harm, refusal …
	Site      string // layer and anchor, in words
	Value     float64
	// Joined marks the scores by which state, word and act are joined: the harm level
	// and the refusal rate that the state stands for. They are no estimate apart.
	Joined bool
}

type key [16]byte

func keyOf(id string) key {
	sum := sha256.Sum256([]byte(id))
	return key(sum[:16])
}

type requestRow struct {
	id, topic string
	harm      int8
	texts     map[string]string   // by variant, if texts are kept
	words     map[string][]uint32 // by variant: digests of the words
}

type predictionRow struct {
	request                              int32
	variant, question, polarity, reading uint16
	temperature                          float64
	seed                                 uint32
	outcome                              uint8
	confidence, harm, p                  float32 // NaN where null
}

// Outcomes of a prediction in compact form. The first two are the sides of the
// two-by-two table.
const (
	saysComply = iota
	saysRefuse
	declined
	unparsed
	predictionFailed
	noPrediction
	outcomes
)

// Why a response ended, in compact form.
const (
	stopUnknown = iota
	stopEnd
	stopLength
)

type trialRow struct {
	request       int32
	variant, temp uint16
	seed          uint32
	failed        bool
	sounds        bool   // as a refusal, by its words
	text          uint64 // digest of the response, 0 where it is empty
	stop          uint8
	limit         int32  // of tokens
	key           uint32 // rank-free tie-break: first bytes of the trial's key
}

type verdictRow struct {
	trial key
	judge uint16
	label uint8
	why   uint16
}

// Labels in compact form: the index in data.Labels, then two that no judge gives.
const (
	labelFailed   = 8 // the engine gave no response
	labelUnjudged = 9 // no verdict of this judge
	labelKinds    = 10
)

// names numbers strings in the order they come.
type names struct {
	index map[string]uint16
	list  []string
}

func (n *names) of(s string) uint16 {
	if i, ok := n.index[s]; ok {
		return i
	}
	if n.index == nil {
		n.index = map[string]uint16{}
	}
	if len(n.list) == math.MaxUint16 { // no plan has so many: the rest share the last
		return math.MaxUint16 - 1
	}
	i := uint16(len(n.list))
	n.index[s] = i
	n.list = append(n.list, s)
	return i
}

// NewDataset returns an empty data set for the model's name, which stands in
// every estimate.
func NewDataset(model string) *Dataset {
	return &Dataset{Model: model, ids: map[string]int32{}, keys: map[key]int32{}}
}

func (d *Dataset) request(id string) int32 {
	if i, ok := d.ids[id]; ok {
		return i
	}
	i := int32(len(d.requests))
	d.ids[id] = i
	d.requests = append(d.requests, requestRow{id: id})
	return i
}

// AddRequest adds one wording of a request. Its topic and harm level are those
// of the first wording that has them.
func (d *Dataset) AddRequest(r data.Request) {
	row := &d.requests[d.request(r.ID)]
	if row.topic == "" {
		row.topic = r.Topic
	}
	if row.harm == 0 && r.Harm >= 1 && r.Harm <= 5 {
		row.harm = int8(r.Harm)
	}
	if r.Text != "" {
		if row.words == nil {
			row.words = map[string][]uint32{}
		}
		row.words[r.Variant] = wordsOf(r.Text)
	}
	if d.KeepTexts {
		if row.texts == nil {
			row.texts = map[string]string{}
		}
		row.texts[r.Variant] = r.Text
	}
}

// AddPrediction adds one reading of one prediction.
func (d *Dataset) AddPrediction(p data.Prediction) {
	outcome := uint8(noPrediction)
	switch {
	case p.Outcome == data.WillComply:
		outcome = saysComply
	case p.Outcome == data.WillRefuse:
		outcome = saysRefuse
	case p.Outcome == data.Declined:
		outcome = declined
	case p.Outcome == data.Unparsed:
		outcome = unparsed
	case p.Outcome == data.Failed || p.ErrorKind != "":
		outcome = predictionFailed
	}
	d.preds = append(d.preds, predictionRow{
		request: d.request(p.RequestID), variant: d.variants.of(p.Variant),
		question: d.labels.of(p.Question), polarity: d.labels.of(p.Polarity), reading: d.labels.of(p.Reading),
		temperature: p.Temperature, seed: p.Seed, outcome: outcome,
		confidence: number(p.Confidence, 1, 5), harm: number(p.HarmRating, 1, 5), p: number(p.PRefuse, 0, 1),
	})
}

// number is the value if it is in its range, else NaN.
func number(v *float64, lo, hi float64) float32 {
	if v == nil || !(*v >= lo && *v <= hi) {
		return float32(math.NaN())
	}
	return float32(*v)
}

// AddTrial adds one response. A trial that comes again is ignored. A temperature
// that is no number counts as 0.
func (d *Dataset) AddTrial(t data.Trial) {
	if math.IsNaN(t.Temperature) {
		t.Temperature = 0
	}
	k := keyOf(t.ID)
	if _, again := d.keys[k]; again {
		return
	}
	d.keys[k] = int32(len(d.trials))
	temp := slices.Index(d.temps, t.Temperature)
	if temp < 0 {
		temp = len(d.temps)
		d.temps = append(d.temps, t.Temperature)
	}
	var text uint64
	sounds := false
	if t.Text != "" {
		sounds = SoundsRefused(t.Text)
		sum := sha256.Sum256([]byte(t.Text))
		text = binary.LittleEndian.Uint64(sum[:]) | 1
	}
	stop := uint8(stopUnknown)
	switch t.StopReason {
	case data.StopEnd:
		stop = stopEnd
	case data.StopLength:
		stop = stopLength
	}
	d.trials = append(d.trials, trialRow{
		request: d.request(t.RequestID), variant: d.variants.of(t.Variant), temp: uint16(temp), seed: t.Seed,
		failed: t.ErrorKind != "" || t.StopReason == data.StopError,
		sounds: sounds, text: text, stop: stop, limit: int32(clamp(float64(t.MaxTokens), 0, math.MaxInt32)), key: binary.BigEndian.Uint32(k[:]),
	})
	if d.KeepTexts {
		d.responses = append(d.responses, t.Text)
	}
}

// AddVerdict adds one judge's label of one trial. Of several by one judge the
// last counts.
func (d *Dataset) AddVerdict(v data.Verdict) {
	label := slices.Index(data.Labels(), v.Label)
	if label < 0 {
		label = slices.Index(data.Labels(), data.Unclear)
	}
	d.verdicts = append(d.verdicts, verdictRow{keyOf(v.TrialID), d.judges.of(v.Judge), uint8(label), d.reason(v.Reason)})
}

// mostReasons bounds the different reasons that are kept.
const mostReasons = 1000

var ruleName = regexp.MustCompile(`^[a-z0-9_.:+-]{1,60}$`)

// reason numbers the reason of a verdict. A judge's own words may quote a
// response, so they are kept only where texts are.
func (d *Dataset) reason(s string) uint16 {
	switch {
	case s == "":
		s = "none given"
	case !d.KeepTexts && !ruleName.MatchString(s):
		s = "in the judge's own words"
	case utf8.RuneCountInString(s) > 120:
		s = string([]rune(s)[:120]) + "…"
	}
	if _, ok := d.reasons.index[s]; !ok && len(d.reasons.list) >= mostReasons {
		s = "other reasons"
	}
	return d.reasons.of(s)
}

// reasonsBy counts the reasons of one judge for the labels that count.
func (d *Dataset) reasonsBy(judge string) []ReasonCount {
	j, ok := d.judges.index[judge]
	if !ok {
		return nil
	}
	type pair struct {
		label uint8
		why   uint16
	}
	last := make([]int32, len(d.trials)) // verdict of each trial, counted from 1
	for i, v := range d.verdicts {
		if t, ok := d.keys[v.trial]; ok && v.judge == j && !d.trials[t].failed {
			last[t] = int32(i + 1)
		}
	}
	counts := map[pair]int{}
	for _, i := range last {
		if i > 0 {
			counts[pair{d.verdicts[i-1].label, d.verdicts[i-1].why}]++
		}
	}
	var list []ReasonCount
	for k, n := range counts {
		list = append(list, ReasonCount{data.Labels()[k.label], d.reasons.list[k.why], n})
	}
	slices.SortFunc(list, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Trials, a.Trials), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// AddScore adds a probe's score of a prompt.
func (d *Dataset) AddScore(s Score) {
	if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
		d.scores = append(d.scores, s)
	}
}

// Judges returns the names of all judges that gave a verdict, in order of name.
func (d *Dataset) Judges() []string { return slices.Sorted(slices.Values(d.judges.list)) }

// Readings returns the readings present, in the order grammar, free, exact, and
// any other by name.
func (d *Dataset) Readings() []string {
	seen := map[string]bool{}
	for _, p := range d.preds {
		seen[d.labels.list[p.reading]] = true
	}
	var list []string
	for _, r := range []string{data.Grammar, data.Free, data.Exact} {
		if seen[r] {
			list = append(list, r)
			delete(seen, r)
		}
	}
	var rest []string
	for r := range seen {
		rest = append(rest, r)
	}
	slices.Sort(rest)
	return append(list, rest...)
}

// A cell counts the labels of one prompt's trials at one temperature, in one
// half of the draws.
type cell struct {
	prompt int32
	temp   uint16
	half   uint8
	n      [labelKinds]int32
}

// A promptRow is one wording of one request.
type promptRow struct {
	cluster     int32
	variant     uint16
	first, last int32 // its trials, in arranged order
	cells       [2]int32
}

// arranged is a data set put in order: clusters by request id, prompts by
// cluster and variant, trials by temperature and seed. It does not depend on the
// order in which records came.
type arranged struct {
	d        *Dataset
	clusters []int32 // request of each cluster
	rank     []int32 // cluster of each request
	temps    []float64
	prompts  []promptRow
	byPrompt map[promptKey]int32
	trials   []trialRow
	origin   []int32 // index of each trial in the data set
	label    []uint8 // of each trial
	half     []uint8
	cells    []cell
	rejudged [2]int // pairs of equal texts of one prompt: all, and those labelled differently
}

type promptKey struct {
	cluster int32
	variant string
}

func (d *Dataset) arrange(judge string) *arranged {
	a := &arranged{d: d, byPrompt: map[promptKey]int32{}}
	for i := range d.requests {
		a.clusters = append(a.clusters, int32(i))
	}
	slices.SortFunc(a.clusters, func(x, y int32) int { return strings.Compare(d.requests[x].id, d.requests[y].id) })
	a.rank = make([]int32, len(d.requests))
	for c, r := range a.clusters {
		a.rank[r] = int32(c)
	}
	a.temps = slices.Clone(d.temps)
	slices.Sort(a.temps)
	tempRank := make([]uint16, len(d.temps))
	for i, t := range d.temps {
		tempRank[i] = uint16(slices.Index(a.temps, t))
	}
	variantRank := make([]uint16, len(d.variants.list))
	for i, name := range slices.Sorted(slices.Values(d.variants.list)) {
		variantRank[d.variants.index[name]] = uint16(i)
	}

	a.origin = make([]int32, len(d.trials))
	for i := range a.origin {
		a.origin[i] = int32(i)
	}
	slices.SortFunc(a.origin, func(x, y int32) int {
		s, t := &d.trials[x], &d.trials[y]
		return cmp.Or(
			cmp.Compare(a.rank[s.request], a.rank[t.request]),
			cmp.Compare(variantRank[s.variant], variantRank[t.variant]),
			cmp.Compare(tempRank[s.temp], tempRank[t.temp]),
			cmp.Compare(s.seed, t.seed),
			cmp.Compare(s.key, t.key))
	})
	labels := d.labelsBy(judge)
	a.trials = make([]trialRow, len(d.trials))
	a.label = make([]uint8, len(d.trials))
	a.half = make([]uint8, len(d.trials))
	for i, o := range a.origin {
		a.trials[i] = d.trials[o]
		a.trials[i].temp = tempRank[d.trials[o].temp]
		a.label[i] = labels[o]
	}
	a.fill()
	return a
}

// labelsBy returns one judge's label of every trial, in the order they came.
func (d *Dataset) labelsBy(judge string) []uint8 {
	labels := make([]uint8, len(d.trials))
	for i := range labels {
		labels[i] = labelUnjudged
		if d.trials[i].failed {
			labels[i] = labelFailed
		}
	}
	j, ok := d.judges.index[judge]
	if !ok {
		return labels
	}
	for _, v := range d.verdicts {
		if v.judge != j {
			continue
		}
		if i, ok := d.keys[v.trial]; ok && labels[i] != labelFailed {
			labels[i] = v.label
		}
	}
	return labels
}

// fill finds prompts, halves of draws, and cells.
func (a *arranged) fill() {
	draws := 0 // of the request so far: halves alternate over all its wordings
	var order []int32
	for i := 0; i < len(a.trials); {
		t := a.trials[i]
		p := promptRow{cluster: a.rank[t.request], variant: t.variant, first: int32(i), cells: [2]int32{int32(len(a.cells))}}
		if len(a.prompts) == 0 || a.prompts[len(a.prompts)-1].cluster != p.cluster {
			draws = 0
		}
		for i < len(a.trials) && a.trials[i].request == t.request && a.trials[i].variant == t.variant {
			j := i
			var cells [2]cell
			order = order[:0]
			for j < len(a.trials) && a.trials[j].request == t.request && a.trials[j].variant == t.variant && a.trials[j].temp == a.trials[i].temp {
				order = append(order, int32(j))
				j++
			}
			// Dealt by the digests of their ids: a file may list its trials by label,
			// and dealing them in that order would make the halves alike.
			slices.SortFunc(order, func(x, y int32) int { return cmp.Or(cmp.Compare(a.trials[x].key, a.trials[y].key), cmp.Compare(x, y)) })
			for _, at := range order {
				half := uint8(draws % 2)
				a.half[at] = half
				cells[half].n[a.label[at]]++
				// At temperature 0 all seeds are one observation: they stay in one
				// half, or a request's bin would be assigned by the very text scored.
				if a.temps[a.trials[i].temp] > 0 {
					draws++
				}
			}
			if a.temps[a.trials[i].temp] == 0 {
				draws++
			}
			for half, c := range cells {
				if c.n != ([labelKinds]int32{}) {
					c.prompt, c.temp, c.half = int32(len(a.prompts)), a.trials[i].temp, uint8(half)
					a.cells = append(a.cells, c)
				}
			}
			i = j
		}
		p.last = int32(i)
		p.cells[1] = int32(len(a.cells))
		a.byPrompt[promptKey{p.cluster, a.d.variants.list[p.variant]}] = int32(len(a.prompts))
		a.prompts = append(a.prompts, p)
	}
	for _, p := range a.prompts {
		seen := map[uint64]uint8{}
		for i := p.first; i < p.last; i++ {
			// Responses without text, as some imports have them, are not equal texts.
			if a.label[i] >= labelFailed || a.trials[i].text == 0 {
				continue
			}
			first, ok := seen[a.trials[i].text]
			if !ok {
				seen[a.trials[i].text] = a.label[i]
				continue
			}
			a.rejudged[0]++
			if first != a.label[i] {
				a.rejudged[1]++
			}
		}
	}
}

// predictions returns, for each prompt with trials, the prediction that the
// choice names, and whether all were made at temperature 0. Where the plan swept
// predictions, that of the lowest temperature and seed counts.
func (a *arranged) predictions(question, polarity, reading string) (chosen []predictionRow, greedy bool) {
	chosen = make([]predictionRow, len(a.prompts))
	for i := range chosen {
		chosen[i].outcome = noPrediction
		chosen[i].temperature = math.Inf(1)
		nan := float32(math.NaN())
		chosen[i].confidence, chosen[i].harm, chosen[i].p = nan, nan, nan
	}
	d := a.d
	greedy = true
	for _, p := range d.preds {
		if d.labels.list[p.question] != question || d.labels.list[p.polarity] != polarity || d.labels.list[p.reading] != reading {
			continue
		}
		i, ok := a.byPrompt[promptKey{a.rank[p.request], d.variants.list[p.variant]}]
		if !ok {
			continue
		}
		old := chosen[i]
		if old.outcome == noPrediction || p.temperature < old.temperature || (p.temperature == old.temperature && p.seed < old.seed) {
			chosen[i] = p
		}
	}
	for _, p := range chosen {
		if p.outcome != noPrediction && p.temperature != 0 {
			greedy = false
		}
	}
	return chosen, greedy
}
