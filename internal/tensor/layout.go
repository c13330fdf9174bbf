package tensor

import (
	"fmt"
	"strconv"
)

// MaxRank is the largest number of dimensions that memplan handles.
const MaxRank = 8

// Dims is a short list of dimension sizes or strides, without heap storage.
type Dims struct {
	n int8
	v [MaxRank]int64
}

// RankError is what making Dims of more than MaxRank dimensions panics with,
// so that whoever handles user input can turn it into an error.
type RankError int

func (e RankError) Error() string {
	return fmt.Sprintf("%d dimensions; at most %d are handled", int(e), MaxRank)
}

// D makes Dims from values. It panics with a RankError beyond MaxRank.
func D(v ...int64) Dims {
	var d Dims
	if len(v) > MaxRank {
		panic(RankError(len(v)))
	}
	d.n = int8(copy(d.v[:], v))
	return d
}

// Len is the number of dimensions.
func (d Dims) Len() int { return int(d.n) }

// At returns dimension i; a negative i counts from the end, as in Python.
func (d Dims) At(i int) int64 {
	if i < 0 {
		i += int(d.n)
	}
	return d.v[i]
}

// Set returns d with dimension i (negative: from the end) replaced.
func (d Dims) Set(i int, x int64) Dims {
	if i < 0 {
		i += int(d.n)
	}
	d.v[i] = x
	return d
}

// Slice returns the dimensions as a fresh slice.
func (d Dims) Slice() []int64 { return append([]int64(nil), d.v[:d.n]...) }

// Ints returns the dimensions as numbers of elements in host memory.
func (d Dims) Ints() []int {
	out := make([]int, d.n)
	for i := range out {
		out[i] = int(d.v[i])
	}
	return out
}

// Insert returns d with x put before dimension i. It panics with a RankError
// beyond MaxRank.
func (d Dims) Insert(i int, x int64) Dims {
	if d.n == MaxRank {
		panic(RankError(MaxRank + 1))
	}
	s := d.v
	copy(d.v[i+1:], s[i:d.n])
	d.v[i] = x
	d.n++
	return d
}

// Remove returns d without dimension i.
func (d Dims) Remove(i int) Dims {
	copy(d.v[i:], d.v[i+1:d.n])
	d.n--
	d.v[d.n] = 0
	return d
}

// Append returns d with x at the end.
func (d Dims) Append(x int64) Dims { return d.Insert(int(d.n), x) }

// Numel is the product of the dimensions: 1 for none.
func (d Dims) Numel() int64 {
	n := int64(1)
	for _, x := range d.v[:d.n] {
		n *= x
	}
	return n
}

// Bytes is what so many elements of a size take, or the error of MulBytes.
func (d Dims) Bytes(size int64) (Bytes, error) {
	var factors [MaxRank + 1]int64
	n := copy(factors[:], d.v[:d.n])
	factors[n] = size
	return MulBytes(factors[:n+1]...)
}

// CheckNumel is Numel, or an error that wraps ErrOverflow if it exceeds
// MaxBytes: no element is smaller than a byte.
func (d Dims) CheckNumel() (int64, error) {
	n := int64(1)
	for _, x := range d.v[:d.n] {
		if x == 0 {
			return 0, nil
		}
	}
	for _, x := range d.v[:d.n] {
		if x < 0 {
			return 0, fmt.Errorf("negative size %d", x)
		}
		if n > MaxBytes/x {
			return 0, ErrOverflow
		}
		n *= x
	}
	return n, nil
}

// String prints the dimensions as Python prints a torch.Size: "[2, 3]".
func (d Dims) String() string { return SizeString(d.v[:d.n]) }

// SizeString prints sizes as Python prints a torch.Size.
func SizeString(v []int64) string {
	var room [64]byte
	return string(AppendSize(room[:0], v))
}

// AppendSize appends what SizeString prints.
func AppendSize(b []byte, v []int64) []byte {
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, x, 10)
	}
	return append(b, ']')
}

// AppendKey appends sizes and strides.
func (l *Layout) AppendKey(b []byte) []byte {
	return AppendSize(AppendSize(b, l.Size.v[:l.Size.n]), l.Stride.v[:l.Stride.n])
}

// Layout says where a tensor's elements lie in its storage. Sizes, strides
// and offset count elements, as in PyTorch.
type Layout struct {
	Size, Stride Dims
	Offset       int64
}

// Contiguous is the row-major layout of the given sizes at offset 0.
func Contiguous(size Dims) Layout {
	l := Layout{Size: size}
	l.Stride.n = size.n
	s := int64(1)
	for i := int(size.n) - 1; i >= 0; i-- {
		l.Stride.v[i] = s
		s *= max(size.v[i], 1)
	}
	return l
}

// ChannelsLast is the NHWC (or NDHWC) layout of the given NCHW sizes.
func ChannelsLast(size Dims) Layout {
	l := Layout{Size: size}
	l.Stride.n = size.n
	s := int64(1)
	put := func(i int) {
		l.Stride.v[i] = s
		s *= max(size.v[i], 1)
	}
	put(1)
	for i := int(size.n) - 1; i >= 2; i-- {
		put(i)
	}
	put(0)
	return l
}

// InFormat is the ChannelsLast layout if last is set, else the Contiguous one.
func InFormat(size Dims, last bool) Layout {
	if last {
		return ChannelsLast(size)
	}
	return Contiguous(size)
}

// Rank is the number of dimensions.
func (l *Layout) Rank() int { return int(l.Size.n) }

// Dim returns the size of dimension i (negative: from the end).
func (l *Layout) Dim(i int) int64 { return l.Size.At(i) }

// Numel is the number of elements.
func (l *Layout) Numel() int64 { return l.Size.Numel() }

// StorageElems is the least number of elements that a storage needs for l
// (at::detail::computeStorageNbytes): one past the largest reachable index.
func (l *Layout) StorageElems() int64 {
	n := l.Offset + 1
	for i := range int(l.Size.n) {
		if l.Size.v[i] == 0 {
			return 0
		}
		n += (l.Size.v[i] - 1) * l.Stride.v[i]
	}
	return n
}

// IsContiguous reports row-major order; sizes of 1 may have any stride.
func (l *Layout) IsContiguous() bool {
	s := int64(1)
	for i := int(l.Size.n) - 1; i >= 0; i-- {
		if l.Size.v[i] == 0 {
			return true
		}
	}
	for i := int(l.Size.n) - 1; i >= 0; i-- {
		if l.Size.v[i] == 1 {
			continue
		}
		if l.Stride.v[i] != s {
			return false
		}
		s *= l.Size.v[i]
	}
	return true
}

// IsChannelsLast reports NHWC (rank 4) or NDHWC (rank 5) order of the strides
// (c10::is_channels_last_strides_2d_s4 and _3d_s5), which ambiguous tensors
// (one channel, or one pixel) satisfy only if their strides say so.
func (l *Layout) IsChannelsLast() bool {
	var order []int
	switch l.Size.n {
	case 4:
		order = []int{1, 3, 2, 0}
	case 5:
		order = []int{1, 4, 3, 2, 0}
	default:
		return false
	}
	if l.Stride.v[1] == 0 {
		return false
	}
	least := int64(0)
	for _, d := range order {
		if l.Size.v[d] == 0 || l.Stride.v[d] < least {
			return false
		}
		if d == 0 && least == l.Stride.v[1] {
			return false
		}
		least = l.Stride.v[d]
		if l.Size.v[d] > 1 {
			least *= l.Size.v[d]
		}
	}
	return true
}

// IsChannelsLastContiguous reports a dense NHWC or NDHWC tensor.
func (l *Layout) IsChannelsLastContiguous() bool {
	if l.Size.n != 4 && l.Size.n != 5 {
		return false
	}
	want := ChannelsLast(l.Size)
	for i := range int(l.Size.n) {
		if l.Size.v[i] != 1 && l.Stride.v[i] != want.Stride.v[i] {
			return false
		}
	}
	return true
}

// strideOrder returns the dimensions from the smallest stride to the largest,
// stable, ignoring none.
func (l *Layout) strideOrder() []int {
	p := make([]int, l.Size.n)
	for i := range p {
		p[i] = i
	}
	for i := 1; i < len(p); i++ { // insertion sort: short and stable
		for j := i; j > 0 && l.Stride.v[p[j]] < l.Stride.v[p[j-1]]; j-- {
			p[j], p[j-1] = p[j-1], p[j]
		}
	}
	return p
}

// IsDense reports whether the elements fill a range of the storage without
// holes or overlap, in any order of dimensions (non_overlapping_and_dense).
func (l *Layout) IsDense() bool {
	if l.IsContiguous() {
		return true
	}
	// Dimensions of size 0 or 1 sort last in PyTorch: their strides do not matter.
	need := int64(1)
	for _, i := range l.strideOrder() {
		if l.Size.v[i] < 2 {
			continue
		}
		if l.Stride.v[i] != need {
			return false
		}
		need *= l.Size.v[i]
	}
	return true
}

// LikeDense is the layout of a new tensor that keeps l's order of dimensions
// (empty_like with preserve_format): l's strides if l is dense, else strides
// of the same order without holes (infer_dense_strides). The offset is 0.
func (l *Layout) LikeDense() Layout {
	if l.IsDense() {
		return Layout{Size: l.Size, Stride: l.Stride}
	}
	return l.permuted(l.iterOrder())
}

// permuted lays l's sizes out densely, the dimensions in the given order from
// the innermost.
func (l *Layout) permuted(order []int) Layout {
	r := Layout{Size: l.Size}
	r.Stride.n = l.Size.n
	s := int64(1)
	for _, d := range order {
		r.Stride.v[d] = s
		s *= max(l.Size.v[d], 1) // size 0: there is nothing to lay out
	}
	return r
}

// iterOrder returns the dimensions from the innermost to the outermost as
// TensorIterator orders those of its operands; here for one operand.
func (l *Layout) iterOrder() []int { return iterOrder(l.Size, []Dims{l.Stride}) }

// iterOrder orders the dimensions of an elementwise operation over operands
// with these strides, that have been expanded to shape (at::TensorIteratorBase::reorder_dimensions):
// an insertion sort from the innermost outwards, where the first operand that
// tells two dimensions apart decides; strides of 0 tell nothing.
func iterOrder(shape Dims, strides []Dims) []int {
	n := int(shape.n)
	p := make([]int, n)
	for i := range p {
		p[i] = n - 1 - i
	}
	// compare(a, b) > 0: dimension a belongs outside of b; 0: ambiguous.
	compare := func(a, b int) int {
		for i := range strides {
			sa, sb := strides[i].v[a], strides[i].v[b]
			switch {
			case sa == 0 || sb == 0:
				continue
			case sa < sb:
				return -1
			case sa > sb:
				return 1
			default: // equal strides: the larger dimension goes outside
				if shape.v[a] > shape.v[b] {
					return 1
				}
			}
		}
		return 0
	}
	for i := 1; i < n; i++ {
		d1 := i
		for d0 := i - 1; d0 >= 0; d0-- {
			c := compare(p[d0], p[d1])
			if c > 0 {
				p[d0], p[d1] = p[d1], p[d0]
				d1 = d0
			} else if c < 0 {
				break
			}
		}
	}
	return p
}

// Elementwise is the layout of the result of an elementwise operation: sizes
// by broadcasting, strides as TensorIterator gives them to an output that it
// allocates. Nil operands are skipped. It fails when sizes do not broadcast.
func Elementwise(operands ...*Layout) (Layout, error) {
	var shape Dims
	var ops []*Layout
	same := true
	for _, o := range operands {
		if o == nil {
			continue
		}
		if len(ops) == 0 {
			shape = o.Size
		} else if o.Size != shape {
			same = false
			s, err := Broadcast(shape, o.Size)
			if err != nil {
				return Layout{}, err
			}
			shape = s
		}
		ops = append(ops, o)
	}
	if same {
		// TensorIterator's fast set-up: all operands agree on a dense layout.
		contiguous, channelsLast, dense := true, true, true
		for _, o := range ops {
			contiguous = contiguous && o.IsContiguous()
			channelsLast = channelsLast && o.Size.n == 4 && o.IsChannelsLastContiguous()
			dense = dense && o.IsDense() && o.Stride == ops[0].Stride
		}
		switch {
		case contiguous:
			return Contiguous(shape), nil
		case channelsLast:
			return ChannelsLast(shape), nil
		case dense:
			return Layout{Size: shape, Stride: ops[0].Stride}, nil
		}
	}
	var room [4]Dims // most have no more operands
	strides := room[:0]
	for _, o := range ops {
		strides = append(strides, o.expanded(shape).Stride)
	}
	l := Layout{Size: shape}
	order := iterOrder(shape, strides)
	contiguous := true
	for i, d := range order {
		contiguous = contiguous && d == len(order)-1-i
	}
	if contiguous {
		return Contiguous(shape), nil
	}
	return l.permuted(order), nil
}

// expanded returns l broadcast to shape with strides of 0 where it repeats.
func (l *Layout) expanded(shape Dims) Layout {
	r := Layout{Size: shape, Offset: l.Offset}
	r.Stride.n = shape.n
	k := int(shape.n - l.Size.n)
	for i := range int(l.Size.n) {
		if l.Size.v[i] != 1 || shape.v[i+k] == 1 {
			r.Stride.v[i+k] = l.Stride.v[i]
		}
	}
	return r
}

// Broadcast returns the common shape of two operands, or an error that names
// both.
func Broadcast(a, b Dims) (Dims, error) {
	if a.n < b.n {
		a, b = b, a
	}
	r := a
	k := int(a.n - b.n)
	for i := range int(b.n) {
		x, y := a.v[i+k], b.v[i]
		switch {
		case x == y || y == 1:
		case x == 1:
			r.v[i+k] = y
		default:
			return Dims{}, fmt.Errorf("shapes %v and %v do not broadcast: dimension %d is %d against %d", a, b, i+k, x, y)
		}
	}
	return r, nil
}
