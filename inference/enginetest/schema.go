package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var errNoGrammar = errors.New("the sampling asks for a grammar and the job has none")

// A property is one choice that a schema leaves open, with its values as JSON.
type property struct {
	name   string
	values []string
}

// readSchema returns the properties of an object schema, in their order, or the
// one unnamed choice of another schema. It reads the part of JSON Schema that
// has finitely many values: boolean, enum, const, integers with bounds.
func readSchema(schema string) ([]property, error) {
	var top struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal([]byte(schema), &top); err != nil {
		return nil, fmt.Errorf("grammar: schema is no JSON: %w", err)
	}
	if top.Properties == nil {
		values, err := readValues([]byte(schema))
		if err != nil {
			return nil, err
		}
		return []property{{values: values}}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(top.Properties))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("grammar: properties are no object")
	}
	var properties []property
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("grammar: properties: %w", err)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("grammar: properties: %w", err)
		}
		values, err := readValues(raw)
		if err != nil {
			return nil, fmt.Errorf("grammar: property %v: %w", name, err)
		}
		properties = append(properties, property{name.(string), values})
	}
	return properties, nil
}

func readValues(schema []byte) ([]string, error) {
	var s struct {
		Type    string            `json:"type"`
		Enum    []json.RawMessage `json:"enum"`
		Const   json.RawMessage   `json:"const"`
		Minimum *int              `json:"minimum"`
		Maximum *int              `json:"maximum"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	var values []string
	switch {
	case len(s.Enum) > 0:
		for _, v := range s.Enum {
			values = append(values, strings.TrimSpace(string(v)))
		}
	case s.Const != nil:
		values = []string{string(s.Const)}
	case s.Type == "boolean":
		values = []string{"true", "false"}
	case s.Type == "integer" && s.Minimum != nil && s.Maximum != nil && *s.Minimum <= *s.Maximum && *s.Maximum-*s.Minimum < 1000:
		for n := *s.Minimum; n <= *s.Maximum; n++ {
			values = append(values, strconv.Itoa(n))
		}
	default:
		return nil, fmt.Errorf("the scripted engine cannot follow %s", schema)
	}
	return values, nil
}
