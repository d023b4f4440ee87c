package main

import (
	"fmt"
	"time"
)

// A pace says once a minute how much is done, and how long the rest takes at the
// speed of the last minute: what a run before has done goes by at once.
type pace struct {
	e     *env
	what  string
	shown time.Time
	done  int // at shown
}

// firstPace is when the first line comes.
const firstPace = 10 * time.Second

func newPace(e *env, what string) *pace {
	return &pace{e: e, what: what, shown: time.Now().Add(firstPace - time.Minute)}
}

func (p *pace) at(done, of int) {
	now := time.Now()
	took := now.Sub(p.shown)
	if took < time.Minute || done >= of {
		return
	}
	line := fmt.Sprintf("%d of %d %s", done, of, p.what)
	if n := done - p.done; n > 0 && p.done > 0 {
		line += ", about " + roughly(took/time.Duration(n)*time.Duration(of-done)) + " left"
	}
	p.e.say("%s", line)
	p.shown, p.done = now, done
}
