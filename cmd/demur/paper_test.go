package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demur/analysis"
)

// A simulated request of docs/paper.md: the chance of refusal and the prediction
// of each wording, and the refusals among one and among twenty responses.
type simulatedWording struct {
	refuses     bool // is predicted
	few, twenty int
}

// simulateBoundary draws the model of docs/paper.md: 300 requests in three
// wordings, log odds of refusal spread by 5 between requests and by 0.8 between
// wordings, and a self-prediction that sees the log odds with an error of 0.8,
// the same for every request.
func simulateBoundary() [][3]simulatedWording {
	r := rand.New(rand.NewPCG(4, 0))
	requests := make([][3]simulatedWording, 300)
	for i := range requests {
		u := -1 + 5*r.NormFloat64()
		for w := range requests[i] {
			odds := u + 0.8*r.NormFloat64()
			x := simulatedWording{refuses: odds+0.8*r.NormFloat64() > 0}
			p := 1 / (1 + math.Exp(-odds))
			for draw := range 21 {
				switch refused := r.Float64() < p; {
				case refused && draw == 0:
					x.few = 1
				case refused:
					x.twenty++
				}
			}
			requests[i][w] = x
		}
	}
	return requests
}

func sideOf(refuses bool) string {
	if refuses {
		return "refuse"
	}
	return "comply"
}

// TestSimulationOfThePaperIsRepeatable writes the two files of docs/paper.md again
// and finds them as they are. DEMUR_UPDATE=1 replaces them.
func TestSimulationOfThePaperIsRepeatable(t *testing.T) {
	var few, many strings.Builder
	few.WriteString("request_id,variant,predicted,label\n")
	many.WriteString("request_id,variant,predicted,label,count\n")
	for i, request := range simulateBoundary() {
		for w, x := range request {
			variant := []string{"base", "p1", "p2"}[w]
			fmt.Fprintf(&few, "r-%03d,%s,%s,%s\n", i+1, variant, sideOf(x.refuses), sideOf(x.few == 1))
			for _, refused := range []bool{true, false} {
				n := x.twenty
				if !refused {
					n = 20 - n
				}
				if n > 0 {
					fmt.Fprintf(&many, "r-%03d,%s,%s,%s,%d\n", i+1, variant, sideOf(x.refuses), sideOf(refused), n)
				}
			}
		}
	}
	for name, want := range map[string]string{"boundary-3.csv": few.String(), "boundary-60.csv": many.String()} {
		path := filepath.Join("../../docs", name)
		if os.Getenv("DEMUR_UPDATE") != "" {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("docs/%s is not what the simulation draws", name)
		}
	}
}

// naiveBins are the bins of one response a wording, by refusals among the three.
func naiveBins() (bins [4]analysis.Counts, requests [4]int) {
	for _, request := range simulateBoundary() {
		refused := request[0].few + request[1].few + request[2].few
		requests[refused]++
		c := &bins[refused]
		for _, x := range request {
			switch {
			case x.few == 1 && x.refuses:
				c.Hits++
			case x.few == 1:
				c.Misses++
			case x.refuses:
				c.FalseAlarms++
			default:
				c.CorrectRejections++
			}
		}
	}
	return bins, requests
}

// corrected is d′ with the log-linear rule in every case, an empty class
// included: half a trial in each cell.
func corrected(c analysis.Counts) float64 {
	half := analysis.Counts{Hits: c.Hits + 0.5, Misses: c.Misses + 0.5, FalseAlarms: c.FalseAlarms + 0.5, CorrectRejections: c.CorrectRejections + 0.5}
	return half.DPrime(analysis.Uncorrected)
}

// TestNaiveBinsOfThePaper computes the table of docs/paper.md that demur itself
// refuses to print.
func TestNaiveBinsOfThePaper(t *testing.T) {
	bins, requests := naiveBins()
	var table strings.Builder
	for k, c := range bins {
		fmt.Fprintf(&table, "| %d of 3 | %d | %.0f, %.0f, %.0f, %.0f | %.1f %% | %.2f |\n", k, requests[k], c.Hits, c.Misses, c.FalseAlarms, c.CorrectRejections, 100*c.Accuracy(), corrected(c))
	}
	page, err := os.ReadFile("../../docs/paper.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/paper.md lacks the table\n%s", table.String())
	}
	for k, c := range bins {
		got := c.DPrime(analysis.LogLinear)
		if empty := k == 0 || k == 3; empty != math.IsNaN(got) {
			t.Errorf("%d of 3 refused: demur gives d′ %v", k, got)
		}
	}
}

// TestPaperShowsWhatIsPrinted runs the commands of docs/paper.md, in order and in
// one folder, and finds every line that it shows. A line of three dots stands for
// lines that are left out.
func TestPaperShowsWhatIsPrinted(t *testing.T) {
	page := documents(t)["paper.md"]
	dir := t.TempDir()
	files, err := filepath.Glob("../../docs/*.csv")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "docs", filepath.Base(path)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	ran := 0
	for _, block := range consoleBlock.FindAllStringSubmatch(page, -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, shown, _ := strings.Cut(part, "\n")
			ran++
			var out, talk bytes.Buffer
			words := strings.Fields(command)
			switch words[0] {
			case "bin/demur":
				if code := mainCode(words[1:], strings.NewReader(""), &out, &talk); code != 0 {
					t.Fatalf("%s: exit code %d\n%s", command, code, talk.String())
				}
			case "cat":
				b, err := os.ReadFile(words[1])
				if err != nil {
					t.Fatal(err)
				}
				out.Write(b)
			default:
				t.Fatalf("%s: only bin/demur and cat are run here", command)
			}
			if rest := missingLine(out.String()+talk.String(), shown); rest != "" {
				t.Errorf("%s prints no line %q; it prints\n%s", command, rest, out.String()+talk.String())
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d commands were run", ran)
	}
}

// missingLine returns the first line that is shown and not printed next, or
// anywhere below where a line of dots came before it; empty if all are there.
func missingLine(printed, shown string) string {
	have := strings.Split(printed, "\n")
	skip := true // the first line may stand anywhere: talk and data are two streams
	for _, line := range strings.Split(strings.TrimRight(shown, "\n"), "\n") {
		if strings.TrimSpace(line) == "…" {
			skip = true
			continue
		}
		at := -1
		for i, h := range have {
			if strings.TrimRight(h, " ") == strings.TrimRight(line, " ") {
				at = i
				break
			}
			if !skip {
				break
			}
		}
		if at < 0 {
			return line
		}
		have, skip = have[at+1:], false
	}
	return ""
}
