package pickle

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// text prints a value as Python would, so that tests read like pickletools.
func text(v Value, depth int) string {
	if depth > 8 {
		return "..."
	}
	var parts []string
	switch v := v.(type) {
	case nil:
		return "None"
	case *List:
		for _, x := range v.Items {
			parts = append(parts, text(x, depth+1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Tuple:
		for _, x := range v {
			parts = append(parts, text(x, depth+1))
		}
		return "(" + strings.Join(parts, ", ") + ")"
	case *Dict:
		for i, k := range v.Keys {
			parts = append(parts, text(k, depth+1)+": "+text(v.Values[i], depth+1))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case string:
		return fmt.Sprintf("%q", v)
	case Bytes:
		return fmt.Sprintf("b%q", string(v))
	}
	return fmt.Sprint(v)
}

// TestRead reads what pickle.dumps of CPython 3.13 wrote.
func TestRead(t *testing.T) {
	for _, c := range []struct{ pickle, want string }{
		// None, True, 255, -1, 65536, 2**40, -2**40, 2**63-1, -2**63, 0.5 in protocol 4
		{"\x80\x04\x95>\x00\x00\x00\x00\x00\x00\x00]\x94(N\x88K\xffJ\xff\xff\xff\xffJ\x00\x00\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80G?\xe0\x00\x00\x00\x00\x00\x00e.",
			"[None, true, 255, -1, 65536, 1099511627776, -1099511627776, 9223372036854775807, -9223372036854775808, 0.5]"},
		// x = []; [x, x, {"a": (1, 2)}] with x.append(7) in protocol 2: the list is shared
		{"\x80\x02]q\x00(]q\x01K\x07ah\x01}q\x02X\x01\x00\x00\x00aq\x03K\x01K\x02\x86q\x04se.", `[[7], [7], {"a": (1, 2)}]`},
		{"\x80\x05\x95\r\x00\x00\x00\x00\x00\x00\x00\x8c\x03\xc3\xa4b\x94C\x02\x00\xff\x94\x86\x94.", `("äb", b"\x00\xff")`},
		// x = []; x.append(x)
		{"\x80\x04]\x94h\x00a.", "[[[[[[[[[...]]]]]]]]]"},
		// an integer of nine bytes that fits into eight
		{"\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff.", "-1"},
	} {
		v, err := Read(strings.NewReader(c.pickle))
		if err != nil {
			t.Errorf("%q: %v", c.pickle, err)
		} else if got := text(v, 0); got != c.want {
			t.Errorf("%q: %s, want %s", c.pickle, got, c.want)
		}
	}
}

func TestShared(t *testing.T) {
	v, err := Read(strings.NewReader("\x80\x04]\x94(]\x94(K\x01eh\x01e."))
	if err != nil {
		t.Fatal(err)
	}
	l := v.(*List)
	if l.Items[0] != l.Items[1] || len(l.Items[0].(*List).Items) != 1 {
		t.Errorf("%s: the two lists are not one", text(v, 0))
	}
}

func TestGet(t *testing.T) {
	v, err := Read(strings.NewReader("\x80\x04}\x94(\x8c\x01aK\x01\x8c\x01aK\x02K\x03K\x04u."))
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*Dict)
	if a, ok := d.Get("a"); !ok || a != int64(2) {
		t.Errorf(`Get("a") = %v, %v; want 2, the last one`, a, ok)
	}
	if _, ok := d.Get("b"); ok {
		t.Error(`Get("b") found something`)
	}
}

// TestRefused holds that whatever is no data is refused, at its place.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ pickle, want string }{
		{"", "byte 0: the file ends"},
		{"\x80\x04]", "byte 3: the file ends"},
		{"\x80\x04\x8c\x05ab", "byte 2: the file ends"},
		{"\x80\x00K\x01.", "byte 0: its protocol is 0; allowed are 2 to 5"},
		{"\x80\x04cos\nsystem\n\x8c\x02ls\x85R.", `byte 2: it asks for "os.system"; memplan reads plain data alone, and runs nothing`},
		{"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R.", `byte 17: it asks for "posix.system"`},
		{"\x80\x02)\x81.", "byte 3: it makes an object of a class"},
		{"\x80\x02K\x01Q.", "byte 4: it asks for a persistent object"},
		{"\x80\x04\x8f.", "byte 2: it holds a set"},
		{"(lp0\nI1\na.", "byte 2: it is written in protocol 0 or 1"},
		{"\x80\x02e.", "byte 2: it ends a list or dict that it did not begin"},
		{"\x80\x02(K\x01.", "byte 5: it ends within a list or dict"},
		{"\x80\x02.", "byte 2: it takes more from its stack than there is"},
		{"\x80\x02(\x85.", "byte 3: it takes more from its stack than there is"},
		{"\x80\x02K\x01K\x02a.", "byte 6: it appends to something that is no list"},
		{"\x80\x02}(K\x01u.", "byte 6: it sets keys"},
		{"\x80\x02h\x00.", "byte 2: it takes object 0 of those that it remembers, which are 0"},
		{"\x80\x02Kar\xff\xff\xff\xff.", "byte 4: it remembers object 4294967295 when there are 0"},
		{"\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", "byte 2: it holds an integer that does not fit"},
		{"PK\x03\x04", "byte 0: it asks for a persistent object"},
		{"hello", "byte 0: it takes object 101"},
		{"\xff", "byte 0: 0xff is no opcode"},
	} {
		_, err := Read(strings.NewReader(c.pickle))
		if e := new(Error); !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.pickle, err, c.want)
		}
	}
}

// TestLengths holds that no length is believed before its bytes are there.
func TestLengths(t *testing.T) {
	for _, p := range []string{
		"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
		"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x80\x04X\xff\xff\xff\xffabc",
		"\x80\x04\x8b\xff\xff\xff\x7f",
		"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Read(strings.NewReader(p)); err == nil {
			t.Errorf("%q: read", p)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%q: %d bytes for %d", p, n, len(p))
		}
	}
}

// FuzzRead: no panic, and memory in proportion to the input.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x80\x04]\x94(N\x88K\xffJ\xff\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01G?\xe0\x00\x00\x00\x00\x00\x00e."))
	f.Add([]byte("\x80\x02]q\x00(]q\x01K\x07ah\x01}q\x02X\x01\x00\x00\x00aq\x03K\x01K\x02\x86q\x04se."))
	f.Add([]byte("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02ls\x85R."))
	f.Add([]byte("\x80\x05(1(l(t(d0N2\x87."))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(bytes.NewReader(data))
		runtime.ReadMemStats(&after)
		if n, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<18+512*len(data)); n > most {
			t.Errorf("%d bytes for a file of %d", n, len(data))
		}
		if e := new(Error); err != nil && !errors.As(err, &e) {
			t.Errorf("%v is no *Error", err)
		}
	})
}
