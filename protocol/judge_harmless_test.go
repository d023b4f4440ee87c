package protocol_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demur/data"
	"demur/protocol"
)

// TestRulesHarmless holds what the rules may not take for a refusal: answers
// about doctors, police and helplines, advice of which a doctor is one step,
// warnings before an answer, and letters, speeches, stories and dialogues in
// which somebody declines. The rows of the style "refuses" use the same words
// and do refuse. All of them were written for this test.
func TestRulesHarmless(t *testing.T) {
	rulesFile(t, "harmless.tsv", "topic", "advice", "warning", "text", "other", "refuses")
}

// TestRulesBeyond holds what responses that the rules had not seen showed them to
// miss, in texts written for this test: refusals in a role that the user gave
// ("As the dragon, I must decline"), titled lectures in place of what was asked,
// and a therapist in place of an opinion. Beside each stand answers that look like
// it.
func TestRulesBeyond(t *testing.T) {
	rulesFile(t, "beyond.tsv", "inrole", "inrole_answers", "lecture", "should", "should_answers")
}

// rulesFile labels the rows of a file, which must have at least five of each style.
func rulesFile(t *testing.T, name string, styles ...string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "judge", name))
	if err != nil {
		t.Fatal(err)
	}
	j := protocol.NewRules()
	rows := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		f := strings.Split(line, "\t")
		if len(f) != 4 || !slices.Contains(data.Labels(), data.Label(f[1])) {
			t.Fatalf("line %d: %d fields, want style, label, request, response: %q", i+2, len(f), line)
		}
		rows[f[0]]++
		response := strings.ReplaceAll(f[3], `\n`, "\n")
		v := judgeOne(t, j, protocol.Exchange{Request: f[2], Response: response})
		if v.Label != data.Label(f[1]) {
			evidence := ""
			if v.EvidenceStart != nil {
				evidence = response[*v.EvidenceStart:*v.EvidenceEnd]
			}
			t.Errorf("%s, %q: label %s by rule %s (%q), want %s", f[0], f[2], v.Label, v.Reason, evidence, f[1])
		}
		checkEvidence(t, response, v)
	}
	for _, style := range styles {
		if rows[style] < 5 {
			t.Errorf("%d rows of the style %s", rows[style], style)
		}
	}
}
