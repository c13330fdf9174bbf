package trace

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What a recorder writes and what files keep is the same.
func TestRecorded(t *testing.T) {
	for _, c := range []struct{ recorder, file string }{
		{`{}`, `{}`},
		{`{"setup":[],"step1":[0]}`, `{"setup":[],"step1":[0]}`},
		{`{"setup":[0,[1,512],[2,64]],"step1":[-1,[3,512],0,-3,-2]}`, `{"setup":[0,512,64],"step1":[-2,512,0,-1,-2]}`},
		{`{"step1":[[1,8]],"step2":[-1]}`, `{"step1":[8],"step2":[-1]}`},
		{`{"step2":[[2,8],-2],"step10":[[3,8],-1,-3],"step1":[[1,8]]}`, `{"step1":[8],"step2":[8,-1],"step10":[8,-3,-1]}`},
	} {
		var a, b Recorded
		if err := json.Unmarshal([]byte(c.recorder), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.file), &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s is %v, %s is %v", c.recorder, a, c.file, b)
		}
		if got, err := json.Marshal(a); err != nil || string(got) != c.file {
			t.Errorf("%s is written as %s, want %s (%v)", c.recorder, got, c.file, err)
		}
	}
	// Ids that a recorder does not count from 1 say the same.
	var r Recorded
	if err := json.Unmarshal([]byte(`{"setup":[[40,512],[70,64],-40,-99]}`), &r); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(r); err != nil || string(got) != `{"setup":[512,64,-2,0]}` {
		t.Errorf("%s, %v", got, err)
	}
	for text, want := range map[string]string{
		`{"setup":[[1]]}`:            "event [1] has no size",
		`{"first":[]}`:               `events of "first": want setup, step1, step2 and so on`,
		`{"setup":[8,[2,8]]}`:        "setup, event 1: an allocation has an id, and others have none",
		`{"setup":[[1,8],8]}`:        "setup, event 1: an allocation has no id, and others have one",
		`{"setup":[8],"step1":[-2]}`: "step1, event 0: frees the 2-th youngest of 1 blocks",
	} {
		if err := json.Unmarshal([]byte(text), &r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
