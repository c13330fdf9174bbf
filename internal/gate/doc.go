// Package gate decides whether specs may be merged: it estimates each on each
// GPU that is asked for, holds the outcome against rules with stable
// identifiers, and against what the specs needed before. It prints what it
// finds for people and in the formats that continuous integration reads.
//
// Every finding has a place: the line of the spec that it is about.
package gate
