package data

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ImportEngine is the engine in the manifest of a run that was imported.
const ImportEngine = "import"

// ImportOptions says how to read trials of other tools. The zero value
// recognises format and columns by itself.
type ImportOptions struct {
	Format string
	// Columns says from which column a field comes, where it is not recognised;
	// ImportFields lists the fields. The empty column name takes a field away.
	Columns map[string]string
	// Model names the model where the file has no column for it.
	Model string
	// Judge names who gave the labels; "imported" if it is empty.
	Judge string
	// Labels are further names of labels, in lower case, as in 2_full_refusal.
	Labels map[string]Label
	// Temperature of trials that the file gives none for; 1 if it is nil.
	Temperature *float64
	Demur       string    // version, for the manifest
	Now         time.Time // for the manifest
}

// ImportFields lists what a column of an imported file can fill. All are
// optional, but a file needs predicted, label or response.
func ImportFields() []string {
	return []string{
		"request_id", "variant", "text", "topic", "harm", "model", "temperature", "seed", "predicted", "confidence",
		"harm_rating", "p_refuse", "label", "response", "error", "count",
	}
}

func importColumns() map[string][]string {
	return map[string][]string{
		"request_id":  {"requestid", "promptid", "id", "questionid", "behaviorid", "sampleid", "docid", "itemid", "index", ""},
		"variant":     {"variant", "wording", "paraphrase"},
		"text":        {"text", "request", "prompt", "question", "goal", "forbiddenprompt", "behavior", "input"},
		"topic":       {"topic", "category"},
		"harm":        {"harm", "harmlevel"},
		"model":       {"model", "modelname"},
		"temperature": {"temperature", "temp"},
		"seed":        {"seed", "epoch", "draw", "repeat"},
		"predicted":   {"predicted", "prediction", "predictedrefusal", "willrefuse"},
		"confidence":  {"confidence", "predictedconfidence"},
		"harm_rating": {"harmrating", "predictedharm"},
		"p_refuse":    {"prefuse"},
		"label":       {"label", "verdict", "finallabel"},
		"response":    {"response", "completion", "output", "answer", "generation"},
		"error":       {"error"},
		"count":       {"count"},
	}
}

// Imported is a run made from a file.
type Imported struct {
	Dir, Model                              string
	Requests, Trials, Predictions, Verdicts int64
	Columns                                 map[string]string // field → column
	// Missing says in words which analyses the missing columns cost.
	Missing  []string
	Warnings []string
	// Unmapped counts words of the columns predicted, label and harm that mean
	// nothing here: "label=maybe" → 3. Such labels are unclear, such predictions
	// are none.
	Unmapped map[string]int
}

// Import makes a run directory of the trials of another tool: CSV, JSONL, JSON
// or Parquet with a row a trial; sample logs of Inspect and of
// lm-evaluation-harness, one JSON object a line. A file of several models makes
// a run for each, in folders of out. A few rows are in memory at a time,
// whatever the length of the file.
//
// A row's prediction belongs to its request and variant: given again with each
// trial, it is one prediction.
func Import(path, out string, o ImportOptions) (_ []Imported, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("importing %s: %w", path, err)
		}
	}()
	digest, err := fileDigest(path)
	if err != nil {
		return nil, err
	}
	in, err := openInput(path, o.Format)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	work, err := makeDisk(out)
	if err != nil {
		return nil, err
	}
	r, err := start(work, out)
	if err != nil {
		return nil, errors.Join(err, work.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if f, err := work.Open(manifestName); err == nil {
		f.Close()
		return nil, fmt.Errorf("%s holds a run already: %w; name another directory", out, fs.ErrExist)
	}

	im := &importer{options: o, disk: work, file: RequestSet{Name: strings.TrimSuffix(in.name, filepath.Ext(in.name)), Digest: digest}, models: map[string]*importedModel{}}
	defer func() {
		for _, m := range im.models {
			err = errors.Join(err, m.close())
		}
	}()
	if err := im.readAll(in.records()); err != nil {
		return nil, err
	}
	return im.write(out)
}

// fileDigest returns "sha256:" and the digest of a file.
func fileDigest(path string) (string, error) {
	in, err := openInput(path, formatText)
	if err != nil {
		return "", err
	}
	defer in.Close()
	h := sha256.New()
	if _, err := io.Copy(h, in.r); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// An importer reads one file.
type importer struct {
	options ImportOptions
	disk    disk
	file    RequestSet
	columns map[string]string
	models  map[string]*importedModel
	order   []*importedModel
}

// An importedModel collects the rows of one model.
type importedModel struct {
	Imported
	planID      string
	ranks       map[variantKey]importedRequest
	trialAt     map[[16]byte]int // line of each trial, where the file gives seeds
	requests    *sorter[ranked[Request]]
	predictions *sorter[ranked[Prediction]]
	trials      *sorter[ranked[Trial]]
	verdicts    *sorter[ranked[Verdict]]
	filled      map[string]bool
	n           struct{ several, conflicts, confidence int }
}

type importedRequest struct {
	rank       int
	facts      [8]byte // digest of text, topic and harm
	prediction [8]byte // of the first prediction; zero for none
	several    bool    // another prediction followed
	draws      int32   // trials so far, which number them where there are no seeds
}

func (m *importedModel) close() error {
	return errors.Join(m.requests.close(), m.predictions.close(), m.trials.close(), m.verdicts.close())
}

// The columns are chosen by the first rows: JSON has no header.
const importHead = 1000

func (im *importer) readAll(records iter.Seq2[record, error]) error {
	var head []record
	names := map[string]bool{}
	begin := func() error {
		if len(head) == 0 {
			return errors.New("it has no rows")
		}
		columns := make([]string, 0, len(names))
		for name := range names {
			columns = append(columns, name)
		}
		slices.Sort(columns)
		if err := im.mapColumns(columns); err != nil {
			return err
		}
		for _, row := range head {
			if err := im.add(row); err != nil {
				return err
			}
		}
		return nil
	}
	n := 0
	for row, err := range records {
		if err != nil {
			return err
		}
		row.values = flatten(row.values)
		if n++; n <= importHead {
			head = append(head, row)
			for name := range row.values {
				names[name] = true
			}
			continue
		}
		if n == importHead+1 {
			if err := begin(); err != nil {
				return err
			}
		}
		if err := im.add(row); err != nil {
			return err
		}
	}
	if n <= importHead {
		return begin()
	}
	return nil
}

func (im *importer) mapColumns(columns []string) error {
	plain := map[string]string{}
	for _, name := range columns {
		if _, twice := plain[plainName(name)]; !twice {
			plain[plainName(name)] = name
		}
	}
	im.columns = map[string]string{}
	for field, names := range importColumns() {
		for _, name := range names {
			if column, ok := plain[name]; ok {
				im.columns[field] = column
				break
			}
		}
	}
	for field, column := range im.options.Columns {
		if field == "id" {
			field = "request_id"
		}
		if !slices.Contains(ImportFields(), field) {
			return fmt.Errorf("there is no field %q; the fields are %s", clip(field), strings.Join(ImportFields(), ", "))
		}
		if column == "" {
			delete(im.columns, field)
			continue
		}
		if !slices.Contains(columns, column) {
			return fmt.Errorf("there is no column %q for %s; the columns are %s", clip(column), field, nameList(columns))
		}
		im.columns[field] = column
	}
	for _, field := range []string{"predicted", "label", "response", "p_refuse"} {
		if _, ok := im.columns[field]; ok {
			return nil
		}
	}
	if len(columns) == 0 {
		return errors.New("its rows are empty")
	}
	return fmt.Errorf("no column is known as predicted, label or response; the columns are %s: map one, such as response=%s", nameList(columns), clip(columns[0]))
}

// model returns the collector of a model.
func (im *importer) model(name string) (*importedModel, error) {
	if m, ok := im.models[name]; ok {
		return m, nil
	}
	if len(im.models) >= 256 {
		return nil, errors.New("it has more than 256 models; is another column the model?")
	}
	const memory = sortMemory / 2
	part := func(table string) string { return fmt.Sprintf("%s-%03d", table, len(im.models)) }
	plan, err := json.Marshal(struct {
		File    string            `json:"file_sha256"`
		Columns map[string]string `json:"columns"`
		Model   string            `json:"model"`
		Judge   string            `json:"judge"`
	}{im.file.Digest, im.columns, name, im.judge()})
	if err != nil {
		return nil, err
	}
	m := &importedModel{
		Imported:    Imported{Model: name, Columns: im.columns, Unmapped: map[string]int{}},
		planID:      Digest(json.RawMessage(plan)),
		ranks:       map[variantKey]importedRequest{},
		trialAt:     map[[16]byte]int{},
		filled:      map[string]bool{},
		requests:    newSorter(im.disk, part(Requests), memory, func(a, b *ranked[Request]) int { return cmp.Compare(a.Rank, b.Rank) }),
		predictions: newSorter(im.disk, part(Predictions), memory, comparePredictions),
		trials:      newSorter(im.disk, part(Trials), memory, compareTrials),
		verdicts:    newSorter(im.disk, part(Verdicts), memory, func(a, b *ranked[Verdict]) int { return cmp.Compare(a.Rank, b.Rank) }),
	}
	im.models[name] = m
	im.order = append(im.order, m)
	return m, nil
}

func (im *importer) judge() string {
	if im.options.Judge == "" {
		return "imported"
	}
	return im.options.Judge
}

// add takes one row of the file.
func (im *importer) add(row record) error {
	fail := func(format string, args ...any) error { return &lineError{row.line, fmt.Sprintf(format, args...)} }
	get := func(field string) string {
		column, ok := im.columns[field]
		if !ok {
			return ""
		}
		s := cell(row.values[column])
		if field != "text" && field != "response" {
			s = strings.TrimSpace(s)
		}
		return s
	}
	for field := range im.columns {
		if s := get(field); !utf8.ValidString(s) {
			return fail("%s is not UTF-8", field)
		} else if len(s) > maxLine {
			return fail("%s has %d bytes", field, len(s))
		}
	}
	name := cmp.Or(get("model"), im.options.Model, "imported")
	m, err := im.model(name)
	if err != nil {
		return fail("%v", err)
	}
	for field := range im.columns {
		m.filled[field] = m.filled[field] || get(field) != ""
	}

	t := Trial{Variant: cmp.Or(get("variant"), Base), Temperature: 1, StopReason: StopEnd, PlanID: m.planID, Text: get("response")}
	if im.options.Temperature != nil {
		t.Temperature = *im.options.Temperature
	}
	if s := get("temperature"); s != "" {
		if t.Temperature, err = strconv.ParseFloat(s, 64); err != nil || !(t.Temperature >= 0) || math.IsInf(t.Temperature, 0) {
			return fail("temperature %q is not a number of at least 0", clip(s))
		}
	}
	seeded := get("seed") != ""
	if seeded {
		n, err := strconv.ParseFloat(get("seed"), 64)
		if err != nil || n != math.Trunc(n) || n < 0 || n >= math.MaxUint32 {
			return fail("seed %q is not a whole number from 0 to 4294967294", clip(get("seed")))
		}
		t.Seed = uint32(n)
	}
	count := 1
	if s := get("count"); s != "" {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || n != math.Trunc(n) || n < 0 || n > 1e7 {
			return fail("count %q is not a whole number from 0 to 10000000", clip(s))
		}
		if count = int(n); count > 1 && seeded {
			return fail("a row of several trials has a seed; take one of the columns seed and count away")
		}
	}
	prediction, err := im.prediction(m, t, get)
	if err != nil {
		return fail("%v", err)
	}
	var label Label
	if s := get("label"); s != "" {
		label = im.label(m, s)
	}
	if s := get("error"); s != "" && !slices.Contains([]string{"false", "0", "none", "null"}, strings.ToLower(s)) {
		t.ErrorKind, t.StopReason, label = ErrEngine, StopError, ""
	}
	tried := label != "" || get("response") != "" || t.ErrorKind != ""

	for i := range count {
		q, own, err := im.request(m, row, get, i, count)
		if err != nil {
			return fail("%v", err)
		}
		t.Variant = q.Variant
		rank, r, err := m.place(q)
		if err != nil {
			return err
		}
		t.RequestID = q.ID
		if prediction != nil {
			p := *prediction
			p.RequestID, p.Variant = q.ID, q.Variant
			if err := m.predict(&r, rank, p); err != nil {
				return err
			}
		}
		if tried {
			if !seeded {
				t.Seed = uint32(r.draws)
			}
			r.draws++
			if err := m.try(im, row, rank, t, label, seeded && !own); err != nil {
				return err
			}
		}
		if !own {
			m.ranks[variantKey{q.ID, q.Variant}] = r
		}
	}
	return nil
}

// request makes the request of a row. A row with neither id nor text is a
// request of its own, and its copies are others.
func (im *importer) request(m *importedModel, row record, get func(string) string, i, count int) (q Request, own bool, err error) {
	q = Request{ID: get("request_id"), Variant: cmp.Or(get("variant"), Base), Text: get("text"), Topic: get("topic"), Source: im.file.Name}
	if v := row.values[im.columns["text"]]; isTurns(v) { // chat messages, the last of which is the request
		turns, what := readTurns(v)
		last := len(turns) - 1
		if what == "" && turns[last].Role == "assistant" {
			last--
		}
		if what == "" && (last < 0 || turns[last].Role != "user") {
			what = "the conversation has no user's turn at its end"
		}
		if what != "" {
			return Request{}, false, errors.New(what)
		}
		q.Text = turns[last].Content
		if last > 0 {
			q.Messages = turns[:last:last]
		}
	}
	if s := get("harm"); s != "" {
		f, err := strconv.ParseFloat(s, 64)
		if err == nil && f == math.Trunc(f) && f >= 1 && f <= 5 {
			q.Harm = int(f)
		} else if i == 0 {
			m.Unmapped["harm="+clip(s)]++
		}
	}
	switch {
	case q.ID != "":
	case q.Text != "":
		sum := sha256.Sum256([]byte(Digest(q.Messages) + q.Text))
		q.ID = "t-" + hex.EncodeToString(sum[:6])
	default:
		own = true
		q.ID = fmt.Sprintf("row-%08d", row.line)
		if count > 1 {
			q.ID += fmt.Sprintf("-%07d", i+1)
		}
	}
	return q, own, nil
}

// place finds the request, or adds it.
func (m *importedModel) place(q Request) (int, importedRequest, error) {
	facts := short(q.Text, q.Topic, strconv.Itoa(q.Harm))
	key := variantKey{q.ID, q.Variant}
	r, ok := m.ranks[key]
	if ok {
		if r.facts != facts {
			m.n.conflicts++
		}
		return r.rank, r, nil
	}
	r = importedRequest{rank: int(m.Requests), facts: facts}
	m.Requests++
	return r.rank, r, m.requests.add(ranked[Request]{Rank: r.rank, Row: q})
}

// predict adds a prediction, once for each request and variant that repeats it.
func (m *importedModel) predict(r *importedRequest, rank int, p Prediction) error {
	text := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	content := short(p.Outcome, text(p.Confidence), text(p.HarmRating), text(p.PRefuse))
	if r.prediction == content {
		return nil
	}
	if r.prediction != [8]byte{} {
		m.n.several++
		r.several = true
	}
	r.prediction = content
	p.ID = Digest([]any{m.planID, p.RequestID, p.Variant, p.Temperature, p.Seed, hex.EncodeToString(content[:])})
	m.Predictions++
	return m.predictions.add(ranked[Prediction]{Rank: rank, Row: p})
}

// try adds a trial and its verdict.
func (m *importedModel) try(im *importer, row record, rank int, t Trial, label Label, seeded bool) error {
	id := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%v\x00%d", m.planID, t.RequestID, t.Variant, t.Temperature, t.Seed))
	t.ID = hex.EncodeToString(id[:])
	if seeded {
		key := [16]byte(id[:16])
		if line, twice := m.trialAt[key]; twice {
			return &lineError{row.line, fmt.Sprintf("request %s, variant %s, temperature %v, seed %d was in line %d already; a file without distinct seeds needs seed mapped to no column",
				clip(t.RequestID), clip(t.Variant), t.Temperature, t.Seed, line)}
		}
		m.trialAt[key] = row.line
	}
	m.Trials++
	if err := m.trials.add(ranked[Trial]{Rank: rank, Row: t}); err != nil {
		return err
	}
	if label == "" {
		return nil
	}
	m.Verdicts++
	return m.verdicts.add(ranked[Verdict]{Rank: int(m.Verdicts), Row: Verdict{TrialID: t.ID, Judge: im.judge(), JudgeVersion: im.file.Digest, Label: label}})
}

// prediction reads the prediction of a row, or nil.
func (im *importer) prediction(m *importedModel, t Trial, get func(string) string) (*Prediction, error) {
	p := &Prediction{Question: "imported", Polarity: AskRefuse, Reading: Free, Temperature: t.Temperature, Seed: t.Seed, PlanID: m.planID}
	s := get("predicted")
	switch strings.ToLower(s) {
	case "refuse", "refusal", "refused", "will_refuse", "true", "yes", "1":
		p.Outcome = WillRefuse
	case "comply", "compliance", "complied", "answer", "will_comply", "false", "no", "0":
		p.Outcome = WillComply
	case "declined":
		p.Outcome = Declined
	case "unparsed", "invalid", "unparsable":
		p.Outcome = Unparsed
	case "":
	default:
		m.Unmapped["predicted="+clip(s)]++
	}
	number := func(field string, lo, hi float64) (*float64, error) {
		s := get(field)
		if s == "" || strings.EqualFold(s, "nan") || strings.EqualFold(s, "null") || strings.EqualFold(s, "none") {
			return nil, nil
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) {
			return nil, fmt.Errorf("%s %q is not a number", field, clip(s))
		}
		if v < lo || v > hi {
			m.n.confidence++
			return nil, nil
		}
		return &v, nil
	}
	var errs [3]error
	p.Confidence, errs[0] = number("confidence", 1, 5)
	p.HarmRating, errs[1] = number("harm_rating", 1, 5)
	p.PRefuse, errs[2] = number("p_refuse", 0, 1)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if p.PRefuse != nil {
		p.Reading = Exact
		if p.Outcome == "" {
			p.Outcome = WillComply
			if *p.PRefuse >= 0.5 {
				p.Outcome = WillRefuse
			}
		}
	}
	if p.Outcome == "" {
		return nil, nil
	}
	return p, nil
}

// label reads a label: those that the caller knows, and ParseLabel's. Others are
// unclear, and counted.
func (im *importer) label(m *importedModel, s string) Label {
	if l, ok := ParseLabel(s, im.options.Labels); ok {
		return l
	}
	m.Unmapped["label="+clip(s)]++
	return Unclear
}

// ParseLabel reads a label in any case: demur's own words, those of further, whose
// keys are in lower case, the names of XSTest (arXiv:2308.01263) and OR-Bench
// (arXiv:2405.20947), and plain refuse and comply. Others are none of these, never
// guessed: "partial" could be either of two.
func ParseLabel(s string, further map[string]Label) (l Label, ok bool) {
	word := strings.ToLower(strings.TrimSpace(s))
	if slices.Contains(Labels(), Label(word)) {
		return Label(word), true
	}
	if l, ok := further[word]; ok {
		return l, true
	}
	switch word {
	case "refuse", "refusal", "refused", "2_full_refusal", "direct_refusal":
		return FullRefusal, true
	case "comply", "compliance", "complied", "1_full_compliance", "direct_answer":
		return FullCompliance, true
	case "3_partial_refusal":
		return PartialRefusal, true
	case "indirect_refusal":
		return Deflection, true
	}
	return "", false
}

// short is a digest of texts, long enough to tell the rows of one file apart.
func short(texts ...string) [8]byte {
	h := sha256.New()
	for _, s := range texts {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return [8]byte(h.Sum(nil)[:8])
}

// write stores what was collected: one model in out itself, several in folders
// of it. The manifest is last: it makes a directory a run.
func (im *importer) write(out string) ([]Imported, error) {
	var all []Imported
	slugs := map[string]bool{}
	for i, m := range im.order {
		m.Dir = out
		d := im.disk
		if len(im.order) > 1 {
			s := slug(m.Model)
			if slugs[s] {
				s += "-" + strconv.Itoa(i+1)
			}
			slugs[s] = true
			m.Dir = filepath.Join(out, s)
			var err error
			if d, err = makeDisk(m.Dir); err != nil {
				return nil, err
			}
		}
		err := im.writeModel(d, m)
		if d != im.disk {
			err = errors.Join(err, d.Close())
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m.Imported)
	}
	return all, nil
}

func (im *importer) writeModel(d disk, m *importedModel) error {
	if f, err := d.Open(manifestName); err == nil {
		f.Close()
		return fmt.Errorf("%s holds a run already: %w; name another directory", m.Dir, fs.ErrExist)
	}
	tables := map[string]Table{}
	var errs [6]error
	tables[Requests], errs[0] = storeTable(d, Requests, distinct(m.requests, nil))
	tables[Predictions], errs[1] = storeTable(d, Predictions, m.storedPredictions())
	tables[Trials], errs[2] = storeTable(d, Trials, distinct(m.trials, nil))
	tables[Prompts], errs[3] = storeTable(d, Prompts, func(func(Prompt, error) bool) {})    // what the model was shown is not known
	tables[Attempts], errs[4] = storeTable(d, Attempts, func(func(Attempt, error) bool) {}) // nor when
	if m.Verdicts > 0 {
		_, errs[5] = storeTable(d, Verdicts, distinct(m.verdicts, nil)) // classify may write it again
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	m.say(im)
	plan, err := json.Marshal(map[string]any{"import": map[string]any{"file": im.file.Name, "file_sha256": im.file.Digest, "columns": im.columns}})
	if err != nil {
		return err
	}
	notes, err := json.Marshal(map[string]any{"missing": m.Missing, "warnings": m.Warnings, "unmapped": m.Unmapped})
	if err != nil {
		return err
	}
	judge := im.judge()
	if m.Verdicts == 0 {
		judge = ""
	}
	reading := Free
	if m.filled["p_refuse"] && !m.filled["predicted"] {
		reading = Exact
	}
	when := im.options.Now.UTC().Format(time.RFC3339)
	return writeManifest(d, Manifest{
		Schema: SchemaVersion, Demur: im.options.Demur,
		RunID:    "import_" + slug(m.Model) + "_" + m.planID[:8],
		PlanID:   m.planID,
		Plan:     plan,
		Model:    Model{Name: m.Model, Engine: ImportEngine},
		Requests: RequestSet{Name: im.file.Name, Digest: im.file.Digest, Count: int(m.Requests)},
		Headline: map[string]string{"reading": reading, "question": "imported", "polarity": AskRefuse, "fold": "lenient", "judge": judge},
		Created:  when, Finished: when,
		Tables: tables,
		Extra:  map[string]json.RawMessage{"import": notes},
	})
}

// storedPredictions yields the predictions. A row's temperature is that of its
// trial; where a wording has one prediction, repeated or not, its own is not
// known, and it stands at 0, as a plan's would.
func (m *importedModel) storedPredictions() iter.Seq2[Prediction, error] {
	return func(yield func(Prediction, error) bool) {
		for p, err := range distinct(m.predictions, nil) {
			if !m.ranks[variantKey{p.RequestID, p.Variant}].several {
				p.Temperature, p.Seed = 0, 0
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// say puts into words what is missing and what was done.
func (m *importedModel) say(im *importer) {
	miss := func(field, costs string) {
		if !m.filled[field] {
			m.Missing = append(m.Missing, "no "+field+": "+costs)
		}
	}
	if !m.filled["p_refuse"] {
		miss("predicted", "nothing about what the model says of itself (accuracy, d′, calibration, routing)")
	}
	miss("confidence", "no calibration, ROC by confidence, metacognition or routing")
	miss("harm_rating", "no baseline from the harm rating")
	miss("p_refuse", "no ROC from exact probabilities")
	if !m.filled["label"] && m.filled["response"] {
		m.Missing = append(m.Missing, "no label: classify the run before a report")
	} else {
		miss("label", "nothing about what the model did")
	}
	miss("response", "no judge can read it again")
	miss("temperature", "no stability by temperature; all trials are taken to be of one")
	if !m.filled["request_id"] && !m.filled["text"] {
		m.Missing = append(m.Missing, "no request_id: each row is a request of its own, so no stability, no paraphrases, no clusters")
	} else {
		miss("variant", "no consistency over paraphrases")
	}
	miss("topic", "no groups by topic")
	miss("harm", "no groups by harm level, no baseline from the assigned level")

	warn := func(n int, format string, args ...any) {
		if n > 0 {
			m.Warnings = append(m.Warnings, fmt.Sprintf(format, args...))
		}
	}
	warn(m.n.several, "%d predictions differ from an earlier one of the same wording; all are kept, that of the lowest temperature and seed counts", m.n.several)
	warn(m.n.conflicts, "%d rows give a request another text, topic or harm level than its first row, which counts", m.n.conflicts)
	warn(m.n.confidence, "%d numbers lie outside their range (confidence and harm rating 1 to 5, probability 0 to 1) and were left out", m.n.confidence)
	unmapped := 0
	for _, n := range m.Unmapped {
		unmapped += n
	}
	warn(unmapped, "%d words mean nothing here and were not guessed: %s", unmapped, list(m.Unmapped))
}

// slug makes a name fit for a file on any system.
func slug(name string) string {
	s := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name), "-.")
	return cmp.Or(s[:min(len(s), 60)], "model")
}
