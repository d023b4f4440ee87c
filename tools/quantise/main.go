// Command quantise makes a GGUF file of another quantisation from one, with
// llama.cpp's own quantiser: quantise FROM TO KIND (f16, q8_0, q4_1, q4_0).
package main

import (
	"fmt"
	"os"
	"strings"

	"demur/inference/llamacpp"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: quantise FROM TO KIND (f16, q8_0, q4_1, q4_0)")
		os.Exit(2)
	}
	lib, err := llamacpp.FindLibrary("")
	if err == nil {
		err = llamacpp.Quantise(lib, os.Args[1], os.Args[2], strings.ToUpper(os.Args[3]))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quantise:", err)
		os.Exit(1)
	}
}
