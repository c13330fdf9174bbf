// Package advise answers what people ask after "does it fit": the largest batch
// that does, and the cheapest change that makes it fit.
//
// Every answer is simulated. The peak of reserved memory is not monotone in the
// batch size, or in anything else: a larger batch may fall on segments that fit
// together better. So the search brackets where fitting ends, and then looks at
// the next Lookahead sizes as well; it goes on from the largest that fits, until
// none of the next does.
//
// For a job that does not fit there is a catalogue of changes (All). Each row says
// when it applies, which keys of the spec it sets, what it does to the work of a
// step and so to its time (Work), to the numbers that training computes and to
// people's work; a source goes with every figure. Fix goes through the
// combinations of changes by cost, simulates them, and ends when no cheaper one is
// left: what it proposes is the cheapest of the catalogue, which a test compares
// with trying all. docs/advice.md is the table.
package advise
