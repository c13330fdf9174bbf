// Package hub knows the configurations of models by the names that they have on
// Hugging Face's hub: from a table, from the cache that Hugging Face's libraries keep, and,
// where that is asked for, from the hub itself.
package hub
