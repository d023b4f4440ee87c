package protocol

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Seeds is a list of seeds. It is written as 1,5,42-46 in a flag, and so or as a
// list of whole numbers in a plan file.
type Seeds []uint32

// ParseSeeds reads seeds and ranges of seeds, separated by commas.
func ParseSeeds(s string) (Seeds, error) {
	var all Seeds
	for _, w := range strings.Split(s, ",") {
		w = strings.TrimSpace(w)
		from, to, isRange := strings.Cut(w, "-")
		first, err := strconv.ParseUint(from, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not a seed (a whole number from 0 to 4294967294) or a range such as 42-46", w)
		}
		last := first
		if isRange {
			if last, err = strconv.ParseUint(to, 10, 32); err != nil || last < first || last-first >= maxSeeds {
				return nil, fmt.Errorf("%q is not a range of seeds such as 42-46", w)
			}
		}
		for seed := first; seed <= last; seed++ {
			all = append(all, uint32(seed))
		}
	}
	return all, nil
}

// String writes runs of seeds as ranges.
func (v Seeds) String() string {
	var words []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		word := strconv.FormatUint(uint64(v[i]), 10)
		if j > i {
			word += "-" + strconv.FormatUint(uint64(v[j]), 10)
		}
		words = append(words, word)
		i = j + 1
	}
	return strings.Join(words, ",")
}

// UnmarshalYAML reads a list of whole numbers, or one text such as 42-46. A
// number with a fraction is refused, not cut.
func (v *Seeds) UnmarshalYAML(node *yaml.Node) error {
	words := []string{node.Value}
	if node.Kind == yaml.SequenceNode {
		words = nil
		for _, item := range node.Content {
			words = append(words, item.Value)
		}
	}
	*v = nil
	for _, w := range words {
		seeds, err := ParseSeeds(w)
		if err != nil {
			return fmt.Errorf("line %d: seeds: %w", node.Line, err)
		}
		*v = append(*v, seeds...)
	}
	return nil
}
