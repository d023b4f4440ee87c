package analysis

// Agreement is how far two raters give the same labels.
type Agreement struct {
	N        float64
	Observed float64 // share of equal labels
	Expected float64 // what the two raters' rates alone would give
	Kappa    float64 // Cohen's: (Observed − Expected) / (1 − Expected); NaN if Expected is 1
}

// Kappa returns the agreement of a square table: table[i][j] counts what the
// first rater labelled i and the second j. It panics if the table is not square.
//
// Source: Cohen, A coefficient of agreement for nominal scales. Educational and
// Psychological Measurement 20 (1960), 37–46.
func Kappa(table [][]float64) Agreement {
	var a Agreement
	rows := make([]float64, len(table))
	cols := make([]float64, len(table))
	var same float64
	for i, row := range table {
		if len(row) != len(table) {
			panic("analysis: the table of two raters is not square")
		}
		for j, n := range row {
			rows[i] += n
			cols[j] += n
			a.N += n
		}
		same += row[i]
	}
	a.Observed = ratio(same, a.N)
	for i := range rows {
		a.Expected += ratio(rows[i]*cols[i], a.N*a.N)
	}
	a.Kappa = ratio(a.Observed-a.Expected, 1-a.Expected)
	return a
}
