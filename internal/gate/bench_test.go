package gate

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
)

// BenchmarkCheck checks a hundred specs, which differ in their batch sizes.
func BenchmarkCheck(b *testing.B) {
	const specs = 100
	all := originals(b)
	batch := regexp.MustCompile(`batch_size: \d+`)
	texts := map[string]string{}
	var paths []string
	for i := range specs {
		o := &all[i%len(all)]
		path := fmt.Sprintf("%d-%s", i, o.path)
		texts[path] = batch.ReplaceAllString(o.text, fmt.Sprintf("batch_size: %d", 8+i))
		paths = append(paths, path)
	}
	c := config(b, "headroom: 5%")
	for b.Loop() {
		r, err := Check(context.Background(), &Options{Specs: paths, Config: c, Recipe: func(path string) (*estimate.Recipe, error) {
			return &estimate.Recipe{Path: path, Text: []byte(texts[path])}, nil
		}})
		if err != nil || len(r.Specs) != specs || r.Unread > 0 {
			b.Fatal(err, r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/100specs")
}
