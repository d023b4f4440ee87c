package analysis

import (
	"encoding/json"
	"io"
	"math"
	"strconv"

	"demur/data"
)

// fixed prints a number with that many decimals and never −0; a dash if it is
// not a number.
func fixed(x float64, decimals int) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "–"
	}
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	if v, _ := strconv.ParseFloat(s, 64); v == 0 && s[0] == '-' {
		s = s[1:]
	}
	if s[0] == '-' {
		s = "−" + s[1:]
	}
	return s
}

// WriteJSON writes estimates as one JSON array of objects with the columns of the
// table estimates; undefined values are null.
func WriteJSON(w io.Writer, estimates []data.Estimate) error {
	if estimates == nil {
		estimates = []data.Estimate{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(estimates)
}
