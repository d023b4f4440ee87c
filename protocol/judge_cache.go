package protocol

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"sync"
	"time"

	"demur/data"
)

// A Cache keeps verdicts by judge, version, request and response, so that equal
// texts get one verdict, made once. It may be kept in a file, to which each new
// verdict is added as a line. It is safe for use by several goroutines.
type Cache struct {
	mu       sync.Mutex
	verdicts map[string]data.Verdict
	file     *os.File
	synced   time.Time
}

type cacheLine struct {
	Key     string       `json:"key"`
	Verdict data.Verdict `json:"verdict"`
}

// NewCache returns an empty cache in memory.
func NewCache() *Cache { return &Cache{verdicts: map[string]data.Verdict{}} }

// OpenCache returns the cache that is kept in a file, which is begun if there is
// none. Lines that cannot be read, such as one that was torn off by a kill, are
// ignored: what they held is judged again.
func OpenCache(path string) (*Cache, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644) // two writers add lines, none overwrites
	if err != nil {
		return nil, fmt.Errorf("verdict cache: %w", err)
	}
	c := NewCache()
	c.file = f
	r := bufio.NewReader(f)
	torn := false
	for {
		line, err := r.ReadBytes('\n')
		var l cacheLine
		if len(line) > 0 && json.Unmarshal(line, &l) == nil && l.Key != "" {
			c.verdicts[l.Key] = l.Verdict
		}
		if err == io.EOF {
			torn = len(line) > 0
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("verdict cache %s: %w", path, err), f.Close())
		}
	}
	if torn {
		if _, err := f.Write([]byte("\n")); err != nil {
			return nil, errors.Join(fmt.Errorf("verdict cache %s: %w", path, err), f.Close())
		}
	}
	return c, nil
}

// Close makes the file durable and closes it. A cache in memory has nothing to
// close.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return errors.Join(f.Sync(), f.Close())
}

// Len is the number of verdicts kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.verdicts)
}

func (c *Cache) get(key string) (data.Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.verdicts[key]
	return v, ok
}

func (c *Cache) put(key string, v data.Verdict) error {
	v.TrialID = ""
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdicts[key] = v
	if c.file == nil {
		return nil
	}
	line, err := json.Marshal(cacheLine{key, v})
	if err != nil {
		return fmt.Errorf("verdict cache: %w", err)
	}
	if _, err := c.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("verdict cache: %w", err)
	}
	// A killed process loses nothing that was written; a machine that loses its
	// power loses a second.
	if now := time.Now(); now.Sub(c.synced) >= time.Second {
		c.synced = now
		if err := c.file.Sync(); err != nil {
			return fmt.Errorf("verdict cache: %w", err)
		}
	}
	return nil
}

// Wrap returns the judge with the cache before it: it sees each pair of texts
// once. Do not wrap Human, which goes by trial, not by text.
func (c *Cache) Wrap(j Judge) Judge { return &cached{c, j} }

type cached struct {
	cache *Cache
	judge Judge
}

func (c *cached) Name() string    { return c.judge.Name() }
func (c *cached) Version() string { return c.judge.Version() }

// key is a digest of all that may decide a verdict. That a response was cut is
// part of it, since it stands in the marks.
func (c *cached) key(e Exchange) string {
	cut := ""
	if e.StopReason == data.StopLength {
		cut = data.StopLength
	}
	return data.Digest([]string{c.judge.Name(), c.judge.Version(), e.Request, e.Response, cut})
}

// Judge yields the verdicts in order. The judge behind is given only what the
// cache lacks; while its verdict is out, later exchanges wait in a queue.
func (c *cached) Judge(ctx context.Context, exchanges iter.Seq[Exchange]) iter.Seq2[data.Verdict, error] {
	return func(yield func(data.Verdict, error) bool) {
		type waiting struct{ id, key string }
		var queue []waiting        // in order, not yet yielded
		asked := map[string]bool{} // out with the judge
		var order []string         // keys asked, in order
		stopped, failed := false, error(nil)
		drain := func() {
			for len(queue) > 0 && !stopped {
				v, ok := c.cache.get(queue[0].key)
				if !ok {
					return
				}
				v.TrialID = queue[0].id
				v.Marks = maps.Clone(v.Marks)
				queue = queue[1:]
				stopped = !yield(v, nil)
			}
		}
		misses := func(ask func(Exchange) bool) {
			for e := range exchanges {
				if err := ctx.Err(); err != nil {
					failed = err
					return
				}
				key := c.key(e)
				queue = append(queue, waiting{e.TrialID, key})
				if _, ok := c.cache.get(key); ok || asked[key] {
					drain()
				} else {
					asked[key] = true
					order = append(order, key)
					if !ask(e) {
						return
					}
				}
				if stopped {
					return
				}
			}
		}
		for v, err := range c.judge.Judge(ctx, misses) {
			if stopped {
				return
			}
			if err == nil && len(order) == 0 {
				err = fmt.Errorf("judge %s gave a verdict that nobody asked for", c.judge.Name())
			}
			if err == nil {
				err = c.cache.put(order[0], v)
			}
			if err != nil {
				yield(data.Verdict{}, err)
				return
			}
			delete(asked, order[0])
			order = order[1:]
			if drain(); stopped {
				return
			}
		}
		switch {
		case stopped:
		case failed != nil:
			yield(data.Verdict{}, failed)
		case len(queue) > 0:
			yield(data.Verdict{}, fmt.Errorf("judge %s left %d responses without a verdict", c.judge.Name(), len(queue)))
		}
	}
}
