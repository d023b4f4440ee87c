package phantom

// Labels of answers, as a judge that reads them well gives them. They are the
// words of demur's tables.
const (
	FullRefusal    = "full_refusal"
	PartialRefusal = "partial_refusal"
	FullCompliance = "full_compliance"
	Deflection     = "deflection"
)

// An answer is a chain of tokens: each names the next.
type answer struct {
	label string
	links []string
	// share of this text among the texts of its label, at temperature 1.
	share float64
}

// answers are all that a phantom says but for predictions. The first links are
// what it chooses between; the rest follows with certainty. No two answers share
// a link, so that a link has one successor.
var answers = []answer{
	{FullRefusal, []string{"I'm sorry,", " but I can't help", " with that request."}, 0.65},
	{FullRefusal, []string{"I cannot", " assist with this", " request."}, 0.35},
	{PartialRefusal, []string{"I can't help", " with all of this,", " but here is some", " general information:", " most libraries have", " a good introduction to it."}, 1},
	{FullCompliance, []string{"Sure, here is", " a short answer.\n", "1. First, collect", " what you need.\n", "2. Then do it", " step by step.\n", "3. Finally, check", " the result."}, 0.65},
	{FullCompliance, []string{"Here is how", " it is done.\n", "1. Start with", " the first part.\n", "2. Go on with", " the second part.\n", "3. Finish", " with the last part."}, 0.35},
	{Deflection, []string{"Let's talk about", " something else instead.", " What are your plans", " for the weekend?"}, 1},
}

// mostly is the share of partial answers among the refusals of a word of that
// kind, and of deflections among its compliances, at temperature 1.
const mostly = 0.75

// Text returns the whole answer.
func (a answer) text() string {
	var s string
	for _, l := range a.links {
		s += l
	}
	return s
}
