package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"demur/data"
	"demur/inference"
	"demur/inference/llamacpp"
	"demur/inference/ollama"
)

// A peer is something that demur is measured against.
type peer interface {
	side() string
	measure(ctx context.Context, p *plan) (measurement, error)
	close()
}

// openPeers opens the peers that are wanted and to be had.
func openPeers(ctx context.Context, o options, path string) (peers []peer, err error) {
	defer func() {
		if err != nil {
			for _, p := range peers {
				p.close()
			}
		}
	}()
	wanted := func(side string) bool { return slices.Contains(o.sides, side) }
	if wanted("loop") {
		peers = append(peers, &loopPeer{o: o, path: path})
	}
	for _, parallel := range []int{1, 4} {
		side := map[int]string{1: "ollama", 4: "ollama4"}[parallel]
		if o.ollama == "" || !wanted(side) {
			continue
		}
		name := "bench-" + data.Digest(path)[:12]
		if err := ollama.CreateFromGGUF(ctx, o.ollama, name, path); err != nil {
			return peers, err
		}
		r, err := llamacpp.OpenRenderer(llamacpp.Options{Model: path})
		if err != nil {
			return peers, err
		}
		e, err := ollama.Open(ctx, ollama.Options{BaseURL: o.ollama, Model: name, Context: 512, Threads: o.threads, Parallel: parallel, Renderer: r, TemplateHash: r.TemplateHash()})
		if err != nil {
			return peers, err
		}
		peers = append(peers, &enginePeer{o: o, name: side, engine: e})
	}
	if o.llamaServer != "" && (wanted("server") || wanted("server_n")) {
		s, err := startServer(ctx, o, path)
		if err != nil {
			return peers, err
		}
		if wanted("server") {
			peers = append(peers, &serverPeer{s, "server", 1})
		}
		if wanted("server_n") {
			peers = append(peers, &serverPeer{s, "server_n", 5})
		}
	}
	return peers, nil
}

// loopPeer is a plain loop over the same library: one sequence at a time, the
// prompt kept in the cache.
type loopPeer struct {
	o    options
	path string
}

func (l *loopPeer) side() string { return "loop" }
func (l *loopPeer) close()       {}

func (l *loopPeer) measure(ctx context.Context, p *plan) (measurement, error) {
	e, err := llamacpp.Open(llamacpp.Options{Model: l.path, Context: p.plan.Context, Threads: l.o.threads})
	if err != nil {
		return measurement{}, err
	}
	defer e.Close()
	units, err := p.units(l.o, e.Info())
	if err != nil {
		return measurement{}, err
	}
	var m measurement
	began := time.Now()
	for _, jobs := range units {
		answers, err := e.Loop(ctx, jobs)
		if err != nil {
			return m, err
		}
		for i, a := range answers {
			m.count(l.o, jobs[i], a)
		}
	}
	m.Seconds = time.Since(began).Seconds()
	return m, nil
}

// count adds the trials of an answer. Where temperature 0 is asked once, it
// stands for all its seeds on every side.
func (m *measurement) count(o options, job inference.Job, a inference.Answer) {
	if job.Prompt.Phase != data.Respond {
		return
	}
	for _, g := range a.Generations {
		n := 1
		if o.greedyOnce && g.Sampling.Temperature == 0 {
			n = 5
		}
		m.Trials += n
		m.Tokens += n * g.Tokens
	}
}

// enginePeer is an Ollama server through demur's own client.
type enginePeer struct {
	o      options
	name   string
	engine inference.Engine
}

func (e *enginePeer) side() string { return e.name }
func (e *enginePeer) close()       { e.engine.Close() }

func (e *enginePeer) measure(ctx context.Context, p *plan) (measurement, error) {
	units, err := p.units(e.o, e.engine.Info())
	if err != nil {
		return measurement{}, err
	}
	// The model is loaded before the clock starts.
	warm := units[0][0]
	warm.Samplings = warm.Samplings[:1:1]
	for _, err := range e.engine.Generate(ctx, []inference.Job{warm}) {
		if err != nil {
			return measurement{}, err
		}
	}
	var m measurement
	began := time.Now()
	for _, jobs := range units {
		i := 0
		for a, err := range e.engine.Generate(ctx, jobs) {
			if err != nil {
				return m, err
			}
			for _, g := range a.Generations {
				if g.ErrorKind != "" {
					return m, fmt.Errorf("%s: %s", g.ErrorKind, g.Error)
				}
			}
			m.count(e.o, jobs[i], a)
			i++
		}
	}
	m.Seconds = time.Since(began).Seconds()
	return m, nil
}

// A server is a running llama-server.
type server struct {
	o        options
	base     string
	command  *exec.Cmd
	renderer *llamacpp.Renderer
	once     sync.Once
}

// serverSlots is how many sequences the server decodes together.
const serverSlots = 20

func startServer(ctx context.Context, o options, path string) (*server, error) {
	r, err := llamacpp.OpenRenderer(llamacpp.Options{Model: path})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, o.llamaServer, "-m", path, "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"-np", strconv.Itoa(serverSlots), "-c", strconv.Itoa(serverSlots*512), "--kv-unified", "-fa", "on", "-t", strconv.Itoa(o.threads), "--no-webui")
	if err := c.Start(); err != nil {
		return nil, err
	}
	s := &server{o: o, base: "http://127.0.0.1:" + strconv.Itoa(port), command: c, renderer: r}
	for range 240 {
		if res, err := http.Get(s.base + "/health"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
	s.stop()
	return nil, errors.New("llama-server does not answer")
}

func (s *server) stop() {
	s.once.Do(func() {
		_ = s.command.Process.Kill()
		_ = s.command.Wait()
		s.renderer.Close()
	})
}

// serverPeer sends the plan to a llama-server: n completions a request, as many
// requests at a time as fill its slots.
type serverPeer struct {
	s    *server
	name string
	n    int
}

func (s *serverPeer) side() string { return s.name }
func (s *serverPeer) close()       { s.s.stop() }

// A completion is what is asked of the server at once.
type completion struct {
	Prompt      string   `json:"prompt"`
	NPredict    int      `json:"n_predict"`
	Temperature float64  `json:"temperature"`
	Seed        uint32   `json:"seed"`
	TopK        int      `json:"top_k"`
	TopP        float64  `json:"top_p"`
	MinP        float64  `json:"min_p"`
	Samplers    []string `json:"samplers"`
	CachePrompt bool     `json:"cache_prompt"`
	NCmpl       int      `json:"n_cmpl,omitempty"`

	counts int // trials that it stands for; 0 for predictions
}

func (s *serverPeer) measure(ctx context.Context, p *plan) (measurement, error) {
	units, err := p.units(s.s.o, inference.Info{})
	if err != nil {
		return measurement{}, err
	}
	var all []completion
	for _, jobs := range units {
		for _, j := range jobs {
			rendered, _, err := s.s.renderer.Render(j.Prompt.Messages)
			if err != nil {
				return measurement{}, err
			}
			all = append(all, s.completions(rendered, j)...)
		}
	}
	var m measurement
	var mu sync.Mutex
	var failed error
	queue := make(chan completion)
	var wg sync.WaitGroup
	began := time.Now()
	for range serverSlots / s.n {
		wg.Go(func() {
			for c := range queue {
				tokens, err := s.ask(ctx, c)
				mu.Lock()
				if err != nil && failed == nil {
					failed = err
				}
				m.Trials += c.counts
				if c.counts > 0 {
					m.Tokens += tokens
				}
				mu.Unlock()
			}
		})
	}
	for _, c := range all {
		queue <- c
	}
	close(queue)
	wg.Wait()
	m.Seconds = time.Since(began).Seconds()
	return m, failed
}

func (s *serverPeer) completions(rendered string, j inference.Job) []completion {
	var all []completion
	for i := 0; i < len(j.Samplings); {
		x := j.Samplings[i]
		n := 1
		// Samplings of one temperature differ by their seed alone: they go together.
		for s.n > 1 && n < s.n && i+n < len(j.Samplings) && j.Samplings[i+n].Temperature == x.Temperature {
			n++
		}
		c := completion{
			Prompt: rendered, NPredict: x.MaxTokens, Temperature: x.Temperature, Seed: x.Seed, TopP: 1,
			Samplers: []string{"temperature"}, CachePrompt: true, counts: n,
		}
		if n > 1 {
			c.NCmpl = n
		}
		if s.s.o.greedyOnce && x.Temperature == 0 {
			c.counts = 5
		}
		if j.Prompt.Phase != data.Respond {
			c.counts = 0
		}
		all = append(all, c)
		i += n
	}
	return all
}

func (s *serverPeer) ask(ctx context.Context, c completion) (tokens int, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.s.base+"/completion", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", res.Status, b)
	}
	type answer struct {
		Tokens int `json:"tokens_predicted"`
	}
	var one answer
	if json.Unmarshal(b, &one) == nil {
		return one.Tokens, nil
	}
	var several []answer
	if err := json.Unmarshal(b, &several); err != nil {
		return 0, err
	}
	for _, a := range several {
		tokens += a.Tokens
	}
	if len(several) != c.NCmpl {
		return 0, fmt.Errorf("%d completions came, %d were asked for", len(several), c.NCmpl)
	}
	return tokens, nil
}
