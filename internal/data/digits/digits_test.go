package digits

import (
	"bytes"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/data"
)

// TestDraw checks that what is drawn is read as it is written, that a seed gives the same
// images again and another one others, and that a digit is ink on a light ground.
func TestDraw(t *testing.T) {
	const n = 200
	images, labels := Draw(n, 1)
	f, err := data.Read("images", IDX(images, n, Side, Side))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Array.Size, []int64{n, Side, Side}) {
		t.Errorf("sizes %v", f.Array.Size)
	}
	again, same := Draw(n, 1)
	other, _ := Draw(n, 2)
	if !bytes.Equal(images, again) || !bytes.Equal(labels, same) || bytes.Equal(images, other) {
		t.Error("images are not those of their seed")
	}
	var of [10]int
	for i, l := range labels {
		of[l]++
		ink := 0
		for _, v := range images[i*Side*Side : (i+1)*Side*Side] {
			if v > 127 {
				ink++
			}
		}
		if ink < 25 || ink > 300 {
			t.Errorf("image %d, a %d, has %d dark pixels", i, l, ink)
		}
	}
	if slices.Min(of[:]) == 0 {
		t.Errorf("digits %v", of)
	}
}
