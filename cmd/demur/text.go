package main

import "strings"

// indent sets each line four blanks in.
func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// cell makes text from outside fit for one column of a line.
func cell(text string) string {
	return strings.NewReplacer("\n", "\uFFFD", "\t", "\uFFFD").Replace(plain(text))
}
