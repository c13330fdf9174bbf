package webpage

import (
	"cmp"
	"slices"
)

// thin leaves events out, and blocks that were there before them, so that there are at most so many of both: the smallest
// blocks, first of those that do not live at the peak. The peak stays as it is unless there are too many blocks that are
// freed after it.
func (c *columns) thin(most int) {
	if len(c.Kinds)+c.Held <= most {
		return
	}
	lives, events := make([]bool, len(c.At)), make([]int8, len(c.At)) // at the peak; of the block
	allocated, _ := c.levels()
	peak := 0
	for i, a := range allocated {
		if a > allocated[peak] {
			peak = i
		}
	}
	for b := range c.Held {
		lives[b] = true
	}
	c.follow(func(i, b int, born bool) {
		if b >= 0 {
			events[b]++
			if i <= peak {
				lives[b] = born
			}
		}
	})
	order := make([]int, len(c.At))
	for b := range order {
		order[b] = b
	}
	rank := map[bool]int{false: 0, true: 1}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank[lives[a]], rank[lives[b]]), cmp.Compare(c.Block[a], c.Block[b]), cmp.Compare(a, b))
	})
	gone := make([]bool, len(c.At))
	for left := len(c.Kinds) + c.Held; left > most && len(order) > 0; order = order[1:] {
		b := order[0]
		gone[b] = true
		left -= int(events[b])
		c.Left += int(events[b])
		if b < c.Held {
			left--
			if events[b] == 0 {
				c.Rest += c.Block[b]
			}
		}
		c.LeftBelow = max(c.LeftBelow, c.Block[b])
	}
	c.without(gone)
}

// without takes blocks away, with their events.
func (c *columns) without(gone []bool) {
	number, next := make([]int, len(c.At)), 0
	keep := func(list []int64) (out []int64) {
		for b, x := range list {
			if !gone[b] {
				out = append(out, x)
			}
		}
		return out
	}
	for b := range number {
		if number[b] = next; !gone[b] {
			next++
		}
	}
	var kinds []byte
	doing, freed := []int{}, []int{}
	oom := c.OOM
	c.follow(func(i, b int, born bool) {
		if b >= 0 && gone[b] {
			if i < c.OOM {
				oom--
			}
			return
		}
		if b >= 0 && !born {
			freed = append(freed, number[b])
		}
		kinds, doing = append(kinds, c.Kinds[i]), append(doing, c.Doing[i])
	})
	var category, by []int
	held := c.Held
	for b := range gone {
		if gone[b] && b < held {
			c.Held--
		}
		if !gone[b] {
			category, by = append(category, c.Category[b]), append(by, c.BornBy[b])
		}
	}
	c.At, c.Bytes, c.Block, c.Category, c.BornBy = keep(c.At), keep(c.Bytes), keep(c.Block), category, by
	c.Kinds, c.Doing, c.Freed, c.OOM = string(kinds), doing, freed, min(oom, len(kinds)-1)
	places := map[int]int{}
	works := []work{}
	for _, list := range [][]int{c.Doing, c.BornBy} {
		for i, w := range list {
			n, ok := places[w]
			if !ok {
				n = len(works)
				places[w], works = n, append(works, c.Works[w])
			}
			list[i] = n
		}
	}
	c.Works = works
}
