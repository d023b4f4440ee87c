// Package probes asks what a model's state knows: it takes the residual stream
// of prompts at named positions, fits directions to it with the controls that a
// strict reader wants to see, and relates them to what the model says and does.
package probes
