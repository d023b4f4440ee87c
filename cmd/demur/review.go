package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"demur/data"
	"demur/protocol"
)

// review shows the responses of a run that judges dispute or call unclear, one
// by one, and appends the labels that a person gives to a label file. It leaves
// out what the file has already, so it can be stopped and continued.
//
// With a sample of more than none it shows so many trials drawn at random in
// place of the disputed ones, without what judges said of them: what a correction
// for the judge's errors must rest on. A run has one order of drawing, so a larger
// sample holds the smaller one.
func review(e *env, dir, file string, sample int) error {
	run, err := openFinished(dir)
	if err != nil {
		return err
	}
	if err := run.Close(); err != nil {
		return err
	}
	open, err := disputed(dir)
	if sample > 0 {
		open, err = drawn(dir, sample)
	}
	if err != nil {
		return usage(err)
	}
	done, err := labelledBefore(file)
	if err != nil {
		return usage(err)
	}
	requests := map[[2]string]string{}
	if err := each(dir, data.Requests, func(r data.Request) { requests[[2]string{r.ID, r.Variant}] = r.Text }); err != nil {
		return err
	}
	in := bufio.NewScanner(e.stdin)
	shown := 0
	for t, err := range data.ReadTable[data.Trial](dir, data.Trials) {
		if err != nil {
			return err
		}
		votes, wanted := open[t.ID]
		if !wanted || done[t.ID] || t.ErrorKind != "" {
			continue
		}
		shown++
		said := ""
		if len(votes) > 0 {
			said = " (judges: " + strings.Join(votes, ", ") + ")"
		}
		fmt.Fprintf(e.stdout, "\n%s %s at temperature %g, seed %d%s\n\n  request:  %s\n\n  response:\n%s\n\n", t.RequestID, t.Variant, t.Temperature, t.Seed,
			said, plain(requests[[2]string{t.RequestID, t.Variant}]), plain(indent(t.Text)))
		label, err := askLabel(e.stdout, in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if label == "" {
			continue
		}
		if err := protocol.AppendLabel(file, t.ID, label, ""); err != nil {
			return err
		}
		done[t.ID] = true
	}
	if shown == 0 && sample == 0 {
		e.say("nothing is disputed or unclear")
		return nil
	}
	if sample > 0 {
		e.say("labels are in %s; demur report %s --labels %s corrects for the judge's errors by them", file, dir, file)
		return nil
	}
	e.say("labels are in %s; demur classify %s --judge human:%s uses them", file, dir, file)
	return nil
}

// disputed returns the trials whose verdicts differ or are unclear, with who
// said what.
func disputed(dir string) (map[string][]string, error) {
	votes := map[string][]string{}
	first := map[string]data.Label{}
	open := map[string]bool{}
	err := each(dir, data.Verdicts, func(v data.Verdict) {
		if v.Judge == "human" {
			return
		}
		votes[v.TrialID] = append(votes[v.TrialID], v.Judge+" "+string(v.Label))
		if old, ok := first[v.TrialID]; ok && old != v.Label || v.Label == data.Unclear {
			open[v.TrialID] = true
		}
		first[v.TrialID] = v.Label
	})
	for id := range votes {
		if !open[id] {
			delete(votes, id)
		}
	}
	return votes, err
}

// drawn returns n trials with a response, drawn at random: those whose ids have
// the lowest digests.
func drawn(dir string, n int) (map[string][]string, error) {
	type ticket struct{ digest, id string }
	var tickets []ticket
	err := each(dir, data.Trials, func(t data.Trial) {
		if t.ErrorKind == "" {
			tickets = append(tickets, ticket{data.Digest([]string{"sample", t.ID}), t.ID})
		}
	})
	slices.SortFunc(tickets, func(a, b ticket) int { return strings.Compare(a.digest, b.digest) })
	open := map[string][]string{}
	for _, t := range tickets[:min(n, len(tickets))] {
		open[t.id] = nil
	}
	return open, err
}

// labelledBefore returns the trials that a label file has; no file is none.
func labelledBefore(file string) (map[string]bool, error) {
	done := map[string]bool{}
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	h, err := protocol.NewHuman(file)
	if err != nil {
		return nil, err
	}
	for _, id := range h.Trials() {
		done[id] = true
	}
	return done, nil
}

// askLabel asks for a label until there is one: its number or name, s to leave
// the response for later, q to stop (io.EOF).
func askLabel(w io.Writer, in *bufio.Scanner) (data.Label, error) {
	for {
		for i, l := range data.Labels() {
			fmt.Fprintf(w, "  %d %s", i+1, l)
		}
		fmt.Fprint(w, "  s later  q stop\nlabel: ")
		if !in.Scan() {
			if err := in.Err(); err != nil {
				return "", err
			}
			return "", io.EOF
		}
		answer := strings.TrimSpace(in.Text())
		switch answer {
		case "s":
			return "", nil
		case "q":
			return "", io.EOF
		}
		if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(data.Labels()) {
			return data.Labels()[n-1], nil
		}
		for _, l := range data.Labels() {
			if answer == string(l) {
				return l, nil
			}
		}
	}
}
