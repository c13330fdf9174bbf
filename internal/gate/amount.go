package gate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Amount is a size, or a share of one.
type Amount struct {
	text  string
	share float64
	size  tensor.Bytes
}

// ParseAmount reads a share (5%, or 0.05) or a size (2GiB). No share is
// more than most.
func ParseAmount(text string, most float64) (*Amount, error) {
	a := &Amount{text: strings.TrimSpace(text)}
	number, percent := strings.CutSuffix(a.text, "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		x /= 100
	}
	switch {
	case err == nil && x >= 0 && (x <= 1 || percent && x <= most):
		a.share = x
		if !percent {
			a.text = strconv.FormatFloat(100*x, 'g', 6, 64) + "%"
		}
		return a, nil
	case err == nil || percent: // "2" is no size: two of what?
		return nil, fmt.Errorf("%q is neither a share such as 5%% (0%% to %g%%) nor a size with its unit such as 2GiB", text, 100*most)
	}
	if a.size, err = tensor.ParseBytes(a.text); err != nil {
		return nil, fmt.Errorf("%q is neither a share such as 5%% nor a size such as 2GiB", text)
	}
	a.share = -1
	return a, nil
}

// Of is the amount, of a whole.
func (a *Amount) Of(whole tensor.Bytes) tensor.Bytes {
	if a.share < 0 {
		return a.size
	}
	return tensor.Bytes(a.share * float64(whole))
}

func (a *Amount) String() string { return a.text }
