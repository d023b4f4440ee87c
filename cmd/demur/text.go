package main

import "strings"

// indent sets each line four blanks in.
func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
