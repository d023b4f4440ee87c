package main

import (
	"fmt"
	"strconv"
	"strings"

	"demur/analysis"
)

// checkThresholds holds estimates of the headline to conditions such as
// "accuracy>=0.7". An estimate that is undefined does not meet any.
func checkThresholds(all []*analysis.Findings, require []string) error {
	for _, text := range require {
		metric, limit, atLeast, err := parseThreshold(text)
		if err != nil {
			return usage(err)
		}
		for _, f := range all {
			value, found := (*float64)(nil), false
			for _, x := range f.Estimates {
				if x.Metric == metric && x.Group == "" && (x.Reading == "" || x.Reading == f.Options.Reading) && (x.Fold == "" || x.Fold == string(f.Options.Fold)) {
					value, found = x.Value, true
					break
				}
			}
			switch {
			case !found:
				return usage(fmt.Errorf("threshold %q: there is no metric %s", text, metric))
			case value == nil:
				return withCode(exitThreshold, fmt.Errorf("threshold %s is not met by %s: %s is undefined", text, f.Model, metric))
			case atLeast && *value < limit, !atLeast && *value > limit:
				return withCode(exitThreshold, fmt.Errorf("threshold %s is not met by %s: %s is %.4f", text, f.Model, metric, *value))
			}
		}
	}
	return nil
}

func parseThreshold(text string) (metric string, limit float64, atLeast bool, err error) {
	for _, op := range []string{">=", "<="} {
		if name, number, ok := strings.Cut(text, op); ok {
			limit, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil {
				break
			}
			return strings.TrimSpace(name), limit, op == ">=", nil
		}
	}
	return "", 0, false, fmt.Errorf("threshold %q is not of the form METRIC>=NUMBER or METRIC<=NUMBER", text)
}
