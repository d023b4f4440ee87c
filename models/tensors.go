package models

import "strings"

// A Tensor is where a model's file holds a tensor, and how.
type Tensor struct {
	Name string
	// Dimensions are lengths, that of a row first.
	Dimensions []int
	Kind       int   // ggml's number of the type of its numbers
	RowBytes   int   // of a row
	Offset     int64 // in the file
}

// Tensors lists the tensors of a model of one file. A model in several parts is an
// error.
func Tensors(f File) ([]Tensor, error) {
	facts, err := ReadFacts(f)
	switch {
	case err != nil:
		return nil, err
	case len(f.Parts) > 1:
		return nil, &Error{Kind: ErrUnreadable, Name: f.Name, Problem: "its weights are not read: it lies in several parts", Hint: "merge the parts with llama.cpp's gguf-split --merge"}
	case facts.parsed == nil:
		return nil, &Error{Kind: ErrUnreadable, Name: f.Name, Problem: "its weights are not read: " + strings.Join(facts.Warnings, "; ")}
	}
	var out []Tensor
	for _, t := range facts.parsed.TensorInfos {
		trait, ok := t.Type.Trait()
		if !ok || trait.BlockSize == 0 || len(t.Dimensions) == 0 {
			continue // the header was checked; a type that is not known has no place in it
		}
		x := Tensor{Name: t.Name, Kind: int(t.Type), Offset: facts.parsed.TensorDataStartOffset + int64(t.Offset)}
		for _, d := range t.Dimensions {
			x.Dimensions = append(x.Dimensions, int(d))
		}
		x.RowBytes = int(t.Dimensions[0] / trait.BlockSize * trait.TypeSize)
		out = append(out, x)
	}
	return out, nil
}
