// Package hf reads configurations of Hugging Face models (config.json) and turns
// one into the preset of its model type, with the params that it gives. It knows of
// specs and their params, and nothing of layers or programs.
package hf
