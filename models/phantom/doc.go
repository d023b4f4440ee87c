// Package phantom builds phantoms: language models whose weights are computed,
// not trained, so that all that demur measures has a known true value.
//
// A phantom is a file of the llama architecture that any engine runs. Words of
// a lexicon carry a harm and, apart from it, a trigger; one block brings the
// greatest harm so far to every position, a later one writes the refusal
// direction after the request, and the first token of the answer is drawn with
// odds that follow from it.
package phantom
