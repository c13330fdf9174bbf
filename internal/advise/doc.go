// Package advise answers what people ask after "does it fit": the largest batch
// that does, and the cheapest change that makes it fit.
//
// Every answer is simulated. The peak of reserved memory is not monotone in the
// batch size, or in anything else: a larger batch may fall on segments that fit
// together better. So the search brackets where fitting ends, and then looks at
// the next Lookahead sizes as well; it goes on from the largest that fits, until
// none of the next does.
package advise
