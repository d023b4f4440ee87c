package data

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
)

// The tables of a run directory. Compact writes the first five.
const (
	Requests    = "requests"
	Prompts     = "prompts"
	Predictions = "predictions"
	Trials      = "trials"
	Attempts    = "attempts"
	Verdicts    = "verdicts"
	Directions  = "directions"
	Scores      = "scores"
	Steering    = "steering"
	Estimates   = "estimates"
	Tokens      = "tokens"
)

// Large tables have a folder of their own: "activations/" and a name.
const activationsDir = "activations"

// Compact writes the tables requests, prompts, predictions, trials and attempts
// from journal and manifest alone, and notes their digests in the manifest.
// Rows stand in the order of the request set, then of variant, wording,
// temperature and seed, whatever the order in which units were done; attempts
// in the order in which they happened. No clock is read: done again, or done
// after any interruption, it gives the same bytes, attempts apart. Memory does
// not grow with the number of trials; the disk needs room for the rows twice.
func (r *Run) Compact() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.journal == nil {
		return fmt.Errorf("run %s: compacting: the run is open for reading only", r.dir)
	}
	if r.manifest.Model.Engine == ImportEngine {
		return nil // its tables were made from a file, not from a journal
	}
	if err := r.compact(sortMemory); err != nil {
		return fmt.Errorf("run %s: compacting: %w", r.dir, err)
	}
	return nil
}

func (r *Run) compact(memory int) (err error) {
	ranks := map[variantKey]int{}
	tables := maps.Clone(r.manifest.Tables)
	if tables == nil {
		tables = map[string]Table{}
	}
	tables[Requests], err = storeTable(r.disk, Requests, func(yield func(Request, error) bool) {
		err := r.storedRequests(func(q Request) bool {
			ranks[variantKey{q.ID, q.Variant}] = len(ranks)
			return yield(q, nil)
		})
		if err != nil {
			yield(Request{}, err)
		}
	})
	if err != nil {
		return err
	}

	prompts := newSorter(r.disk, Prompts, memory, comparePrompts)
	predictions := newSorter(r.disk, Predictions, memory, comparePredictions)
	trials := newSorter(r.disk, Trials, memory, compareTrials)
	attempts := newSorter(r.disk, Attempts, memory, func(a, b *ranked[Attempt]) int { return 0 })
	defer func() {
		err = errors.Join(err, prompts.close(), predictions.close(), trials.close(), attempts.close())
	}()
	rank := func(request, variant string) int {
		if n, ok := ranks[variantKey{request, variant}]; ok {
			return n
		}
		return math.MaxInt
	}
	_, err = scanJournal(r.disk, r.manifest.RunID, func(at place, fr frame) error {
		var errs []error
		add := func(err error) {
			if err != nil {
				errs = append(errs, err)
			}
		}
		for _, a := range fr.Attempts {
			add(attempts.add(ranked[Attempt]{Row: a}))
		}
		u := fr.Unit
		if u == nil {
			return errors.Join(errs...)
		}
		for _, a := range u.Attempts {
			add(attempts.add(ranked[Attempt]{Row: a}))
		}
		if r.units[u.ID].at != at {
			return errors.Join(errs...) // a later frame holds the unit's rows
		}
		for _, p := range u.Prompts {
			add(prompts.add(ranked[Prompt]{rank(p.RequestID, p.Variant), u.ID, p}))
		}
		for _, p := range u.Predictions {
			add(predictions.add(ranked[Prediction]{rank(p.RequestID, p.Variant), u.ID, p}))
		}
		for _, t := range u.Trials {
			add(trials.add(ranked[Trial]{rank(t.RequestID, t.Variant), u.ID, t}))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}

	// A prompt that several units asked is one prompt; a trial or prediction in
	// two units is a fault of the plan, and would count twice.
	tables[Prompts], err = storeTable(r.disk, Prompts, distinct(prompts, nil))
	if err != nil {
		return err
	}
	tables[Predictions], err = storeTable(r.disk, Predictions, distinct(predictions, func(p Prediction) string { return "prediction " + p.ID }))
	if err != nil {
		return err
	}
	tables[Trials], err = storeTable(r.disk, Trials, distinct(trials, func(t Trial) string { return "trial " + t.ID }))
	if err != nil {
		return err
	}
	tables[Attempts], err = storeTable(r.disk, Attempts, func(yield func(Attempt, error) bool) {
		for a, err := range attempts.sorted() {
			if !yield(a.Row, err) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if maps.Equal(tables, r.manifest.Tables) {
		return nil
	}
	m := r.manifest
	m.Tables = tables
	return r.store(m)
}

var errStop = errors.New("stop")

// storedRequests calls visit for the requests, which stand before everything
// else in the journal, until it returns false.
func (r *Run) storedRequests(visit func(Request) bool) error {
	_, err := scanJournal(r.disk, r.manifest.RunID, func(_ place, fr frame) error {
		if fr.Requests == nil {
			return errStop
		}
		for _, q := range fr.Requests {
			if !visit(q) {
				return errStop
			}
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// A variantKey names a row of the request set.
type variantKey struct{ request, variant string }

// A ranked row knows where its request stands in the set, and its unit.
type ranked[T any] struct {
	Rank int    `json:"k"`
	Unit string `json:"u"`
	Row  T      `json:"t"`
}

func newSorter[T any](d disk, name string, memory int, compare func(a, b *ranked[T]) int) *sorter[ranked[T]] {
	return &sorter[ranked[T]]{disk: d, name: name, limit: memory, cmp: compare}
}

// distinct yields the rows of a sorter, the first of each that compare equal up
// to their units. With a name, a second one is an error.
func distinct[T any](s *sorter[ranked[T]], name func(T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *ranked[T]
		for row, err := range s.sorted() {
			if err != nil {
				yield(row.Row, err)
				return
			}
			if last != nil {
				same := row
				same.Unit = last.Unit
				if s.cmp(last, &same) == 0 {
					if name == nil {
						continue
					}
					yield(row.Row, fmt.Errorf("%s is in unit %s and again in unit %s", name(row.Row), clip(last.Unit), clip(row.Unit)))
					return
				}
			}
			if !yield(row.Row, nil) {
				return
			}
			last = &row
		}
	}
}

func comparePrompts(a, b *ranked[Prompt]) int {
	return cmp.Or(
		cmp.Compare(a.Rank, b.Rank),
		cmp.Compare(a.Row.RequestID, b.Row.RequestID),
		cmp.Compare(a.Row.Variant, b.Row.Variant),
		cmp.Compare(a.Row.Phase, b.Row.Phase), // predict before respond
		cmp.Compare(a.Row.Question, b.Row.Question),
		cmp.Compare(a.Row.Polarity, b.Row.Polarity),
		cmp.Compare(a.Row.ID, b.Row.ID),
		cmp.Compare(a.Unit, b.Unit),
	)
}

func comparePredictions(a, b *ranked[Prediction]) int {
	return cmp.Or(
		cmp.Compare(a.Rank, b.Rank),
		cmp.Compare(a.Row.RequestID, b.Row.RequestID),
		cmp.Compare(a.Row.Variant, b.Row.Variant),
		cmp.Compare(a.Row.Question, b.Row.Question),
		cmp.Compare(a.Row.Polarity, b.Row.Polarity),
		cmp.Compare(a.Row.Reading, b.Row.Reading),
		cmp.Compare(a.Row.Temperature, b.Row.Temperature),
		cmp.Compare(a.Row.Seed, b.Row.Seed),
		cmp.Compare(a.Row.ID, b.Row.ID),
		cmp.Compare(a.Unit, b.Unit),
	)
}

func compareTrials(a, b *ranked[Trial]) int {
	return cmp.Or(
		cmp.Compare(a.Rank, b.Rank),
		cmp.Compare(a.Row.RequestID, b.Row.RequestID),
		cmp.Compare(a.Row.Variant, b.Row.Variant),
		cmp.Compare(a.Row.Temperature, b.Row.Temperature),
		cmp.Compare(a.Row.Seed, b.Row.Seed),
		cmp.Compare(a.Row.TopK, b.Row.TopK),
		cmp.Compare(a.Row.TopP, b.Row.TopP),
		cmp.Compare(a.Row.MinP, b.Row.MinP),
		cmp.Compare(a.Row.MaxTokens, b.Row.MaxTokens),
		cmp.Compare(a.Row.ID, b.Row.ID),
		cmp.Compare(a.Unit, b.Unit),
	)
}
