package ollama

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// Bounds on the objects that spelled writes out. The server reads a schema into
// 32 KiB of grammar (v0.6.5), in which each quotation mark takes two bytes.
const (
	maxSpelled      = 256
	maxSpelledBytes = 12 << 10
)

// spelled returns a schema of the same objects that lists them one by one, where
// they are few; else the schema as it is. The server's own reading of an object
// lets up to 21 blanks stand at every place where JSON allows any, and small
// models spend their tokens on them: two keys and two values took SmolLM2 88
// tokens, most of them blanks. A listed object has none.
func spelled(schema string) json.RawMessage {
	objects, err := enumerate([]byte(schema))
	if err != nil {
		return json.RawMessage(schema)
	}
	b, err := json.Marshal(map[string]any{"enum": objects})
	if err != nil || len(b) > maxSpelledBytes {
		return json.RawMessage(schema)
	}
	return b
}

// errManifold means that a schema has too many objects to list, or says more of
// them than can be understood here.
var errManifold = errors.New("not a short list of objects")

// enumerate returns all objects of a schema whose properties have few values
// each and are all required, their keys in its order.
func enumerate(schema []byte) ([]json.RawMessage, error) {
	var s struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
		// Whether other keys are allowed makes no difference: none is written.
		AdditionalProperties json.RawMessage `json:"additionalProperties"`
	}
	if err := strict(schema, &s); err != nil {
		return nil, err
	}
	if s.Type != "object" || len(s.Properties) == 0 {
		return nil, errManifold
	}
	names, values, err := properties(s.Properties)
	if err != nil {
		return nil, err
	}
	objects := [][]byte{[]byte("{")}
	for i, name := range names {
		if !slices.Contains(s.Required, name) || len(objects)*len(values[i]) > maxSpelled {
			return nil, errManifold
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		var longer [][]byte
		for _, o := range objects {
			for _, v := range values[i] {
				next := slices.Clone(o)
				if i > 0 {
					next = append(next, ',')
				}
				longer = append(longer, slices.Concat(next, key, []byte(":"), v))
			}
		}
		objects = longer
	}
	all := make([]json.RawMessage, len(objects))
	for i, o := range objects {
		all[i] = append(o, '}')
	}
	return all, nil
}

// properties returns the names of properties in order and the values of each.
func properties(b []byte) (names []string, values [][]json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errManifold
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		var property json.RawMessage
		if err := d.Decode(&property); err != nil {
			return nil, nil, err
		}
		v, err := valuesOf(property)
		if err != nil {
			return nil, nil, err
		}
		names, values = append(names, name.(string)), append(values, v)
	}
	return names, values, nil
}

// valuesOf returns the values that a property can have.
func valuesOf(property []byte) ([]json.RawMessage, error) {
	var p struct {
		Type    string            `json:"type"`
		Enum    []json.RawMessage `json:"enum"`
		Minimum *int              `json:"minimum"`
		Maximum *int              `json:"maximum"`
	}
	if err := strict(property, &p); err != nil {
		return nil, err
	}
	bounded := p.Minimum != nil || p.Maximum != nil
	switch {
	case len(p.Enum) > 0 && len(p.Enum) <= maxSpelled && !bounded:
		for i, v := range p.Enum {
			var c bytes.Buffer
			if err := json.Compact(&c, v); err != nil {
				return nil, err
			}
			p.Enum[i] = c.Bytes()
		}
		return p.Enum, nil
	case p.Type == "boolean" && !bounded:
		return []json.RawMessage{json.RawMessage("true"), json.RawMessage("false")}, nil
	case p.Type == "integer" && p.Minimum != nil && p.Maximum != nil && *p.Minimum <= *p.Maximum && *p.Maximum < *p.Minimum+maxSpelled:
		var all []json.RawMessage
		for n := *p.Minimum; n <= *p.Maximum; n++ {
			all = append(all, json.RawMessage(strconv.Itoa(n)))
		}
		return all, nil
	}
	return nil, errManifold
}

// strict decodes b into v and refuses keys that v does not have.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
