package data

import "errors"

// Options says how to read a request set. The zero value recognises format,
// preset and columns by itself.
type Options struct {
	Format string // csv, jsonl, json, parquet, text; "" by name and content
	Preset string // such as harmbench; "" by columns
	// Columns maps request_id, variant, text, topic, harm, source, language,
	// messages and context to columns of the file.
	Columns map[string]string
}

// A Set is a request set as read.
type Set struct {
	Name     string
	Digest   string // "sha256:" and 64 hex digits of the rows
	Preset   string // that was recognised
	Requests []Request
	Warnings []string
	Unmapped map[string]int // labels that say nothing of the harm level, counted, never guessed
}

// ReadRequests reads a request set from a file.
func ReadRequests(path string, o Options) (Set, error) { return Set{}, errors.ErrUnsupported }
