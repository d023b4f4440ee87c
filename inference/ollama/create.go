package ollama

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/ollama/ollama/api"
)

// CreateFromGGUF gives the server at baseURL, on this machine, a model of the
// name from a GGUF file, as ollama create does. Where the server has the weights
// already nothing is sent. It serves tests and measurements.
func CreateFromGGUF(ctx context.Context, baseURL, name, path string) error {
	base, err := parseURL(baseURL, false)
	if err != nil {
		return err
	}
	c := newClient(base, false)
	defer c.http.CloseIdleConnections()
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("ollama: create %s: %w", name, err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return fmt.Errorf("ollama: create %s: %w", name, err)
	}
	digest := "sha256:" + hex.EncodeToString(hash.Sum(nil))
	err = c.call(ctx, http.MethodHead, "/api/blobs/"+digest, nil, nil)
	var status api.StatusError
	if errors.As(err, &status) && status.StatusCode == http.StatusNotFound {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("ollama: create %s: %w", name, err)
		}
		err = c.call(ctx, http.MethodPost, "/api/blobs/"+digest, io.NopCloser(file), nil)
	}
	if err != nil {
		return fmt.Errorf("ollama: create %s at %s: %w", name, base.Host, root(err))
	}
	resp, err := c.send(ctx, http.MethodPost, "/api/create", api.CreateRequest{Model: name, Files: map[string]string{"model.gguf": digest}})
	if err != nil {
		return fmt.Errorf("ollama: create %s at %s: %w", name, base.Host, root(err))
	}
	defer resp.Body.Close()
	err = lines(resp.Body, func(line []byte) (bool, error) {
		var m struct {
			Status string `json:"status"`
			Error  string `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return false, err
		}
		if m.Error != "" {
			return false, errors.New(m.Error)
		}
		return m.Status != "success", nil
	})
	if err != nil {
		return fmt.Errorf("ollama: create %s at %s: %w", name, base.Host, err)
	}
	return nil
}
